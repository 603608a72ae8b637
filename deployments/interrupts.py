"""Ctrl-C, SIGTERM and a closed terminal: the first asks to stop, a second one asks to hurry.

While something is being started a signal interrupts it at once; afterwards it only sets a flag, so that
stopping is never cut short halfway.
"""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts(AbstractContextManager["Interrupts"]):
    """Handles the signals of the main thread between enter and exit."""

    def __init__(self) -> None:
        self.count = 0
        self.may_raise = True
        self._asked = threading.Event()
        self._previous: dict[signal.Signals, signal._HANDLER] = {}

    @property
    def is_urgent(self) -> bool:
        """Whether somebody asked a second time."""
        return self.count > 1

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds`; return whether somebody asked to stop."""
        return self._asked.wait(seconds)

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # nohup ignores SIGHUP on purpose.
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self._asked.set()
        if self.may_raise and self.count == 1:
            raise KeyboardInterrupt
