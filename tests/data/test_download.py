import hashlib
import socket

import pytest

from sudonet.experiments.data import DataError
from sudonet.experiments.data import _download as downloading
from sudonet.experiments.data._download import download
from sudonet.experiments.data._files import CHUNK
from tests.data.data_files import published, random_bytes
from tests.data.web_site import serving

CONTENT = random_bytes(3 * CHUNK + 1000).tobytes()
FILE = published("file.bin", CONTENT)


@pytest.fixture
def site():
    with serving() as server:
        server.files["file.bin"] = CONTENT
        yield server


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch):
    monkeypatch.setattr(downloading, "TIMEOUT", 10)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "file.bin"


def part_of(target):
    return target.with_name("file.bin.part")


def quiet(name, have, size):
    pass


def failing(site, target, words, file=FILE):
    with pytest.raises(DataError, match=words):
        download(site.url + "file.bin", target, file, quiet)
    assert not target.exists()


def test_a_download_is_whole_and_shows_progress(site, target):
    seen = []
    download(site.url + "file.bin", target, FILE, lambda *state: seen.append(state))
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()
    assert seen[0] == ("file.bin", 0, len(CONTENT))
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [have for _, have, _ in seen] == sorted({have for _, have, _ in seen})
    assert len(seen) > 3


def test_a_download_that_was_cut_off_goes_on_where_it_ended(site, target):
    site.cut = CHUNK + 17
    failing(site, target, rf"ended after {CHUNK + 17:,} of {len(CONTENT):,} bytes: run the")
    assert part_of(target).read_bytes() == CONTENT[: CHUNK + 17]
    failing(site, target, f"ended after {2 * CHUNK + 34:,} of")
    site.cut = None
    download(site.url + "file.bin", target, FILE, quiet)
    assert target.read_bytes() == CONTENT
    assert [asked for _, asked in site.asked] == [
        None,
        f"bytes={CHUNK + 17}-",
        f"bytes={2 * CHUNK + 34}-",
    ]


def test_a_download_that_was_interrupted_goes_on(site, target):
    def stop(name, have, size):
        if have:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(site.url + "file.bin", target, FILE, stop)
    have = part_of(target).stat().st_size
    assert 0 < have < len(CONTENT)
    download(site.url + "file.bin", target, FILE, quiet)
    assert site.asked[-1] == ("/file.bin", f"bytes={have}-")
    assert target.read_bytes() == CONTENT


def test_it_starts_again_where_the_server_cannot_go_on(site, target):
    site.ranges = False
    part_of(target).write_bytes(b"not even the beginning of it")
    download(site.url + "file.bin", target, FILE, quiet)
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_complete_needs_no_server(target):
    part_of(target).write_bytes(CONTENT)
    download("http://127.0.0.1:9/file.bin", target, FILE, quiet)
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_not_gone_on_with(site, target):
    part_of(target).write_bytes(CONTENT + b"more")
    download(site.url + "file.bin", target, FILE, quiet)
    assert site.asked == [("/file.bin", None)]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_wrong_bytes_are_deleted_and_it_is_said(site, target, algorithm):
    site.files["file.bin"] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    wrong = hashlib.new(algorithm, site.files["file.bin"]).hexdigest()
    file = published("file.bin", CONTENT, algorithm)
    words = f"file.bin has {algorithm} {wrong}, {file.checksum} expected: .* deleted"
    failing(site, target, words, file)
    assert not part_of(target).exists()


def test_a_part_of_another_file_is_deleted_and_the_next_try_works(site, target):
    part_of(target).write_bytes(b"of another file")
    failing(site, target, "deleted")
    assert not part_of(target).exists()
    download(site.url + "file.bin", target, FILE, quiet)
    assert target.read_bytes() == CONTENT


def test_a_good_file_stays_when_its_successor_is_wrong(site, target):
    target.write_bytes(b"good")
    site.files["file.bin"] = bytes(len(CONTENT))
    with pytest.raises(DataError, match="deleted"):
        download(site.url + "file.bin", target, FILE, quiet)
    assert target.read_bytes() == b"good"


def test_a_page_of_another_length_is_not_fetched(site, target):
    site.files["file.bin"] = b"<html>We are sorry</html>"
    failing(site, target, rf"offers 25 bytes where {len(CONTENT):,} are left")
    assert not part_of(target).exists()


def test_a_server_that_does_not_say_the_length(site, target):
    site.lengths = False
    download(site.url + "file.bin", target, FILE, quiet)
    assert target.read_bytes() == CONTENT


def test_a_server_that_sends_on_and_on_is_stopped(site, target):
    site.lengths = False
    site.files["file.bin"] = bytes(100_000_000)
    seen = []
    with pytest.raises(DataError, match="bytes long"):
        download(site.url + "file.bin", target, FILE, lambda *state: seen.append(state))
    assert max(have for _, have, _ in seen) <= len(CONTENT) + CHUNK
    assert not part_of(target).exists()


def test_a_file_that_is_not_there(site, target):
    del site.files["file.bin"]
    failing(site, target, "the server answers 404 Not Found")


def test_a_file_that_ends_before_the_part(site, target):
    site.files["file.bin"] = CONTENT[:100]
    part_of(target).write_bytes(CONTENT[:200])
    failing(site, target, "the server answers 416")
    assert not part_of(target).exists()


def test_a_server_that_sends_another_range(site, target):
    site.shift = 5
    part_of(target).write_bytes(CONTENT[:200])
    failing(site, target, r"asked for the bytes from 200 and sends 'bytes 195-")
    assert part_of(target).read_bytes() == CONTENT[:200]


def test_a_server_that_says_nothing(monkeypatch, site, target):
    monkeypatch.setattr(downloading, "TIMEOUT", 0.1)
    site.delay = 0.5
    failing(site, target, "timed out")


def test_no_server_at_all(target):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file.bin"
        with pytest.raises(DataError, match="refused"):
            download(url, target, FILE, quiet)


def test_a_name_that_does_not_resolve(target):
    with pytest.raises(DataError, match=r"\w"):
        download("http://nowhere.invalid/file.bin", target, FILE, quiet)


def test_a_folder_that_cannot_be_written(site, tmp_path):
    with pytest.raises(DataError, match="No such file or directory"):
        download(site.url + "file.bin", tmp_path / "missing" / "file.bin", FILE, quiet)
