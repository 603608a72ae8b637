"""The progress bar of a bulk submission, on stderr and only for a person who does not see the ids scroll by."""

from __future__ import annotations

import sys
from typing import Any, Self


class BulkProgress:
    """Shows how many jobs are registered, and how much of the file is read."""

    def __init__(self, total_bytes: int | None) -> None:
        """Without a total the bar only shows that it moves."""
        self._total = total_bytes
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not sys.stdout.isatty():
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, jobs: int, bytes_read: int) -> None:
        """Tell how far it has come."""
        if self._progress is not None:
            self._progress.update(self._task, completed=bytes_read, jobs=f"{jobs:,}")

    def close(self) -> None:
        """Leave the bar as it stands; what is said next goes below it."""
        if self._progress is not None:
            self._progress.stop()

    def _start(self) -> None:
        # Loaded here: a script's stderr is no terminal, and does not wait for it.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.fields[jobs]} jobs"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %" if self._total else ""),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            # Rich would send what is printed on stdout to the bar's console, which is stderr.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=self._total, jobs="0")
        self._progress.start()
