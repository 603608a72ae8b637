"""Ctrl-C that never cuts a statement: while one is under way, the first is only noted.

A second Ctrl-C does what it always does.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class Interruptible:
    """Turns Ctrl-C into KeyboardInterrupt at once, or behind the statement that is under way."""

    def __init__(self, acknowledge: Callable[[], None]) -> None:
        """The handler is set on entry; `acknowledge` is called when a Ctrl-C is held back."""
        self._acknowledge = acknowledge
        self._held_back = False
        self._asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Only note the first Ctrl-C inside the block."""
        self._held_back = True
        try:
            yield
        finally:
            self._held_back = False

    def check(self) -> None:
        """Raise what was held back.

        Raises:
            KeyboardInterrupt: somebody asked to stop.
        """
        if self._asked:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._held_back and not self._asked:
            self._asked = True
            self._acknowledge()
        elif callable(self._before) and self._held_back:
            self._before(number, frame)
        else:
            raise KeyboardInterrupt
