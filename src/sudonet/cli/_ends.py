"""How the process ends: by signals, and when a pipe or a disk takes no more output.

This is set up before the commands are imported, and imports little itself. A signal becomes an
exception, so that temporary files are removed and commands can say what was kept.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import NoReturn, TextIO

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BROKEN_PIPE = 128 + signal.SIGPIPE
"""The exit code when nobody reads the output any more: what a shell shows for ``cat``."""

CANNOT_WRITE = 2
"""As for everything else that was asked for and cannot be done."""


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; everybody who handles Ctrl-C handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number


def stopped_code(error: KeyboardInterrupt) -> int:
    """The exit code after a signal: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + (error.number if isinstance(error, Stopped) else signal.SIGINT)


def _loads_extension(frame: FrameType | None) -> bool:
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            return True
        frame = frame.f_back
    return False


def end_at_once(code: int) -> NoReturn:
    """End without Python's own end, where other people's threads could hang."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, SystemExit):
            stream.flush()
    os._exit(code)


class _End:
    """What has happened to the process, and the exit code that follows from it."""

    def __init__(self) -> None:
        self.code: int | None = None
        # Who starts us may want us to ignore a signal: nohup, and a shell's background jobs.
        self._heard = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        for number in self._heard:
            signal.signal(number, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.hear_no_more()  # a second signal ends the process at once
        self.code = 128 + number
        self._raise(number, frame)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        """Raise the exception, but not while an extension is loaded: Cython would drop it."""
        if not _loads_extension(frame):
            raise Stopped(number)
        signal.signal(signal.SIGALRM, lambda _, now: self._raise(number, now))
        signal.setitimer(signal.ITIMER_REAL, 0.02)

    def hear_no_more(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in self._heard:
            signal.signal(number, signal.SIG_DFL)

    def no_output(self, name: str, error: OSError) -> int:
        """Say that a stream takes no more, unless nobody wants to know; the exit code."""
        if self.code is None:
            self.code = BROKEN_PIPE if error.errno == errno.EPIPE else CANNOT_WRITE
            if self.code == CANNOT_WRITE:
                line = f"sudonet: cannot write to standard {name}: {error.strerror or error}\n"
                with suppress(OSError):
                    os.write(2, line.encode())
        return self.code


class _Stream(io.FileIO):
    """A standard stream that ends the process when it takes no more.

    SIGPIPE itself stays ignored: it would end the process in the middle of a file, and for a
    socket that somebody else closed.
    """

    def __init__(self, file: TextIO, name: str, end: _End) -> None:
        super().__init__(file.fileno(), "w", closefd=False)
        self._name, self._end = name, end

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())  # what is left in buffers goes there
            os.close(nowhere)
            # No OSError: commands would take it for one of their own files.
            raise SystemExit(self._end.no_output(self._name, error)) from None


def _guarded(file: TextIO, name: str, end: _End) -> TextIO:
    if not isinstance(file, io.TextIOWrapper):  # closed, or somebody else's
        return file
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(file, name, end)),
        encoding=file.encoding,
        errors="backslashreplace",  # file names may hold what no encoding has
        line_buffering=file.line_buffering,
        write_through=file.write_through,
    )


@contextmanager
def orderly_end() -> Iterator[None]:
    """End with one line and the usual code after signals and when output cannot be written."""
    end = _End()
    sys.stdout = _guarded(sys.stdout, "output", end)
    sys.stderr = _guarded(sys.stderr, "error", end)
    try:
        try:
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
    except SystemExit:
        if end.code is None:
            raise
    except BaseException:
        # An interrupted import may raise anything.
        if end.code is None:
            raise
        with suppress(OSError):
            os.write(2, b"sudonet: stopped\n")
    finally:
        end.hear_no_more()  # Python's own end is short, and has no handler for exceptions
    if end.code is not None:
        raise SystemExit(end.code)
