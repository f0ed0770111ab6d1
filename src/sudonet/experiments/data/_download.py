"""Files over HTTP: an interrupted download resumes where it stopped."""

from __future__ import annotations

from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from sudonet.experiments.data._files import CHUNK, Progress, Published, flush, part_of, settle
from sudonet.experiments.data._source import DataError

TIMEOUT = 30.0
"""Seconds without data after which a download fails."""


def download(url: str, target: Path, published: Published, progress: Progress) -> None:
    """Fetch ``url`` as ``target``, which appears only when it is complete and verified.

    A partial download is kept as ``target`` with ``.part`` after its name. The next call, with
    this or another address of the same file, asks for the rest.

    Raises
    ------
    DataError
        If the download fails, or the file is not the one that was published. The part is kept
        in the first case and deleted in the second.
    """
    part = part_of(target)
    try:
        if not part.exists() or part.stat().st_size != published.size:
            _receive(url, part, published, progress)
        settle(part, target, published)
    except HTTPError as error:
        with error:
            if error.code == 416:  # our part is longer than the file, so it is of another
                part.unlink(missing_ok=True)
            raise DataError(f"the server answers {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise DataError(str(reason) or type(error).__name__) from error


def _receive(url: str, part: Path, published: Published, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"User-Agent": "sudonet"})
    if 0 < have < published.size:
        request.add_header("Range", f"bytes={have}-")
    with urlopen(request, timeout=TIMEOUT) as answer:
        resumes = _resumes(answer, have)
        have = have if resumes else 0
        _check_length(answer, published.size - have)
        with part.open("ab" if resumes else "wb") as out:
            progress(published.name, have, published.size)
            while have < published.size and (chunk := answer.read(CHUNK)):
                out.write(chunk)
                have += len(chunk)
                progress(published.name, have, published.size)
            flush(out)
    if have < published.size:
        raise DataError(
            f"the connection ended after {have:,} of {published.size:,} bytes: run the command "
            "again to resume"
        )


def _resumes(answer: HTTPResponse, have: int) -> bool:
    """Whether the server sends the rest, instead of the whole file."""
    if answer.status != 206:
        return False
    sent = answer.headers.get("Content-Range", "")
    if not sent.startswith(f"bytes {have}-"):
        raise DataError(f"the server was asked for the bytes from {have:,} and sends {sent!r}")
    return True


def _check_length(answer: HTTPResponse, expected: int) -> None:
    """Refuse an error page, or another file, before it is downloaded."""
    length = answer.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) != expected:
        raise DataError(
            f"the server offers {int(length):,} bytes where {expected:,} are left to fetch: it "
            "has another file there"
        )
