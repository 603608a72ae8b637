"""How long to wait before a restart: twice as long each time, up to a minute, anew after a good minute."""

from __future__ import annotations

import time

SHORTEST, LONGEST, PROVEN_AFTER = 0.5, 60.0, 60.0


class Backoff:
    """The pauses between the starts of one thing, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._pause = SHORTEST / 2
        self._started = time.monotonic()

    def started(self) -> None:
        """Note a start."""
        now = time.monotonic()
        self._pause = SHORTEST if now - self._started > PROVEN_AFTER else min(self._pause * 2, LONGEST)
        self._started = now

    @property
    def is_over(self) -> bool:
        """Whether the pause since the last start is over."""
        return time.monotonic() - self._started >= self._pause
