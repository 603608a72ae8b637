"""One reading for everybody: it is kept for a while, and read anew once, however many ask at once.

Invariant: however often it is asked for, reading takes no more than a small share of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

LONGEST_S = 60.0


class Kept(Generic[T]):
    """The last value of something that costs to read."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, at_least: timedelta, largest_share: float
    ) -> None:
        """Nothing is read yet.

        Args:
            read: reads the value; must not raise.
            at_least: how long a value is kept.
            largest_share: of the time that reading may take; a value is kept longer for it, up to a minute.
        """
        self._read = read
        self._at_least_s = at_least.total_seconds()
        self._share = largest_share
        self._value: T | None = None
        self._fresh_until = float("-inf")
        self._flight: asyncio.Task[None] | None = None

    async def get(self, *, wait: timedelta) -> T | None:
        """Return the value; behind `wait` the one before, which is None when there is none yet."""
        if time.monotonic() >= self._fresh_until:
            if self._flight is None:
                self._flight = asyncio.create_task(self._renew())
                self._flight.add_done_callback(self._landed)
            # Not cancelled with whoever waits: others wait for it too.
            await asyncio.wait({self._flight}, timeout=wait.total_seconds())
        return self._value

    async def close(self) -> None:
        """Read no more."""
        if self._flight is not None:
            self._flight.cancel()
            with suppress(asyncio.CancelledError):
                await self._flight

    async def _renew(self) -> None:
        began = time.monotonic()
        self._value = await self._read()
        now = time.monotonic()
        keep = max(self._at_least_s, min((now - began) / self._share, LONGEST_S))
        self._fresh_until = now + keep

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flight = None
        if not flight.cancelled() and (fault := flight.exception()) is not None:
            # A fault of ours: without a value the next one who asks meets it again, and it is seen.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a reading for metrics failed", "exception": fault, "task": flight}
            )
