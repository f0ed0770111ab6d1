import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sudonet import _settings
from sudonet.cli import _data as cli_data
from sudonet.experiments.data import _cifar, _fetching, _mnist
from tests.data.data_files import empty_folder, npz, random_bytes, small_mnist, write
from tests.data.web_site import serving


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "400")  # so that no line of the table is folded
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))  # no npm
    (tmp_path / "data").mkdir()
    return empty_folder(monkeypatch, tmp_path / "data")


@pytest.fixture
def site(monkeypatch):
    """A mirror of a small MNIST."""
    with serving() as server:
        server.files = small_mnist(monkeypatch)
        monkeypatch.setattr(_fetching, "MNIST_MIRRORS", (server.url,))
        monkeypatch.setattr(_cifar, "PLACE", server.url)
        yield server


def run(*arguments):
    return CliRunner().invoke(cli_data.app, [str(a) for a in arguments])


def rows(output):
    """The lines under each name."""
    found = {}
    for line in output.splitlines():
        name, text = line[:10].strip(), line[10:].strip()
        if name:
            lines = found[name] = []
        lines.append(text)
    return found


@pytest.mark.parametrize("command", ["list", "fetch"])
def test_help_has_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"sudonet data {command}" in result.stdout.split("Example:")[1]


def test_nothing_heavy_is_loaded_for_help():
    code = "import sys, sudonet.cli._data; sys.exit('sudonet.experiments.data' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_list_names_stand_ins_and_how_to_get_the_real_ones():
    result = run("list")
    assert result.exit_code == 0
    assert rows(result.stdout) == {
        "mnist": [
            "scikit-learn's 8 x 8 digits, in place of MNIST",
            "run sudonet data fetch mnist (11.6 MB)",
        ],
        "imagenet32": [
            "crops of scikit-learn's two photographs, in place of ImageNet 32 x 32",
            (
                "read https://image-net.org/download.php, then run (3,720.1 MB) "
                "sudonet data fetch imagenet32 --accept-terms"
            ),
        ],
        "cifar10": ["not there", "run sudonet data fetch cifar10 (170.5 MB)"],
        "picture": [
            (
                "china.jpg, scikit-learn's photograph by danielbuechele (CC BY 2.0), "
                "in place of the paper's picture"
            )
        ],
    }


def test_list_says_where_data_is_its_size_and_whether_it_is_intact(monkeypatch, folder):
    write(folder / "mnist", small_mnist(monkeypatch))
    content = npz(random_bytes(9, 3072))
    write(folder / "imagenet32", {"train_data_batch_1.npz": content, "val_data.npz": content})
    result = run("list")
    assert result.exit_code == 0
    found = rows(result.stdout)
    assert found["mnist"] == ["MNIST", f"{folder / 'mnist'}, 0.0 MB, md5 sums agree"]
    assert found["imagenet32"][:2] == [
        "32 x 32 images in the layout of Downsampled ImageNet, 9 + 9, in place of ImageNet 32 x 32",
        f"{folder / 'imagenet32'}, 0.1 MB, no checksums are published for these files",
    ]
    assert found["cifar10"] == ["not needed: imagenet32 is there"]


def test_list_shows_every_damage_and_fails(monkeypatch, folder):
    name = _mnist.ARCHIVES[0].name
    write(folder / "mnist", small_mnist(monkeypatch) | {name: b"damaged"})
    write(folder / "imagenet32", {"train_data_batch_1.npz": b"", "val_data.npz": b""})
    write(folder / "cifar10", {"test_batch.png": b""})
    result = run("list")
    assert result.exit_code == 1
    found = rows(result.stdout)
    for row, words in (
        ("mnist", f"{folder / 'mnist' / name} is truncated or damaged"),
        ("imagenet32", f"{folder / 'imagenet32' / 'train_data_batch_1.npz'} is truncated"),
        ("cifar10", f"{folder / 'cifar10' / 'data_batch_1.png'} is missing"),
    ):
        assert found[row][0] == "cannot be used"
        assert found[row][1].startswith(words)


def test_a_data_folder_that_is_missing(monkeypatch, folder):
    monkeypatch.setenv(_settings.DATA, str(folder / "missing"))
    result = run("list")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"sudonet: {folder / 'missing'} does not exist: create it, or correct or unset "
        "SUDONET_DATA, which names it\n"
    )


def test_fetch_puts_data_where_it_is_looked_for(monkeypatch, folder, site):
    monkeypatch.setenv(_settings.DATA, str(folder / "new"))
    result = run("fetch", "mnist")
    assert result.exit_code == 0
    assert result.stdout == f"mnist: {folder / 'new' / 'mnist'}, from {site.url}\n"
    assert _mnist.ARCHIVES[0].name in result.stderr  # its bar
    assert rows(run("list").stdout)["mnist"][0] == "MNIST"
    again = run("fetch", "mnist")
    assert again.stdout == f"mnist: {folder / 'new' / 'mnist'}, was there already\n"


def test_fetch_into_the_cache_without_a_data_folder(monkeypatch, folder, site):
    monkeypatch.delenv(_settings.DATA)
    assert run("fetch", "mnist").exit_code == 0
    assert (folder / "cache" / "sudonet" / "mnist" / _mnist.ARCHIVES[3].name).is_file()
    assert rows(run("list").stdout)["mnist"][0] == "MNIST"


def test_fetch_into_another_folder_says_how_to_have_it_used(folder, site):
    result = run("fetch", "mnist", "--folder", folder / "other")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == (
        f"To have them used: export SUDONET_DATA={folder / 'other'}"
    )


def test_fetch_says_which_sources_failed_before_one_worked(monkeypatch, site):
    monkeypatch.setattr(_fetching, "MNIST_MIRRORS", (site.url + "none/", site.url))
    result = run("fetch", "mnist")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == (
        f"mnist: no success with {site.url}none/: the server answers 404 Not Found"
    )


def test_one_data_set_that_fails_does_not_keep_others_away(folder, site):
    result = run("fetch", "cifar10", "mnist")
    assert result.exit_code == 2
    assert result.stdout == f"mnist: {folder / 'mnist'}, from {site.url}\n"
    assert f"sudonet: cannot fetch cifar10 into {folder / 'cifar10'}" in result.stderr
    assert "404 Not Found" in result.stderr
    assert "npm is not installed" in result.stderr


def test_fetch_without_names_fetches_what_experiments_need(folder, site):
    result = run("fetch")
    assert "mnist:" in result.stdout
    assert "cannot fetch cifar10" in result.stderr


def test_fetch_refuses_before_it_begins(folder, site):
    for arguments, words in (
        (["mnist", "imagenet"], "'imagenet' is not one of 'mnist', 'cifar10', 'imagenet32'"),
        (["mnist", "imagenet32"], "read https://image-net.org/download.php, then fetch it with "),
    ):
        result = run("fetch", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert site.asked == []
