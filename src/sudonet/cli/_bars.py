"""Progress bars of files that are fetched."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class Bars(Progress):
    """A bar for every file that is fetched."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, markup=False, highlight=False),
        )
        self._known: dict[str, TaskID] = {}

    def start(self) -> None:
        """Begin with the first file: without one, an empty line would be printed at the end."""
        if self._known:
            super().start()

    def stop(self) -> None:
        """End, if there was anything to show."""
        if self.live.is_started:
            super().stop()

    def show(self, name: str, have: int, size: int | None) -> None:
        """Show that ``have`` bytes of ``size`` are there; a bar without end if it is None."""
        if name not in self._known:
            self._known[name] = self.add_task(name, total=size)
            self.start()
        self.update(self._known[name], completed=have, total=size)
