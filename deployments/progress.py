"""Tells people what happens, with the seconds since the start."""

from __future__ import annotations

import os
import sys
import time

from rich.console import Console

WIDTH_OF_LOGS = 140


class Progress:
    """Lines on standard output."""

    def __init__(self) -> None:
        # In a log file there is no width to find out, and 80 columns cut the tables up.
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH_OF_LOGS
        self.console = Console(highlight=False, soft_wrap=True, width=width)
        self._began = time.monotonic()

    def report(self, message: str) -> None:
        """Print one line with the time."""
        self.console.print(f"{time.monotonic() - self._began:6.1f} s  {message}", markup=False)

    def line(self, text: str) -> None:
        """Print one line as it is."""
        self.console.print(text, markup=False)
