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
        console = Console(stderr=True, markup=False, highlight=False)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,  # else it would print an empty line
        )
        self._known: dict[str, TaskID] = {}

    def show(self, name: str, have: int, size: int | None) -> None:
        """Show that ``have`` bytes of ``size`` are there; a bar without end if it is None."""
        if name not in self._known:
            self._known[name] = self.add_task(name, total=size)
        self.update(self._known[name], completed=have, total=size)
