"""Walks over history page by page: no statement is long, and a page that fails is asked again, smaller.

A page is sized by what the last one took, so that each is short for the rows it locks on any machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

import structlog

from durable_jobs.errors import StoreUnavailable
from durable_jobs.stores.retention import Position

logger = structlog.get_logger(__name__)

LARGEST = 5_000
FIRST = 500
SHORT, LONG = 0.1, 0.4
"""Seconds: a page under the first grows, one over the second shrinks."""
PATIENCE = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds to wait before a page is asked again."""


class Walked(Protocol):
    """A page, as far as the walk needs it."""

    @property
    def examined(self) -> int:
        """Rows of the page."""
        ...

    @property
    def end(self) -> Position | None:
        """Where the next page begins."""
        ...


W = TypeVar("W", bound=Walked)
Step = Callable[[Position | None, int], Awaitable[W]]


class Budget:
    """A time to be done in; without one there is no hurry."""

    def __init__(self, time_budget: timedelta | None = None) -> None:
        """Begin now."""
        self._ends = None if time_budget is None else time.monotonic() + time_budget.total_seconds()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._ends is not None and time.monotonic() >= self._ends


class Pace:
    """How many rows a page has; shared by the walks of one kind."""

    def __init__(self, first: int = FIRST, largest: int = LARGEST) -> None:
        """Begin small: a first page on a slow machine is short too."""
        self.rows, self._largest = min(first, largest), largest

    def took(self, seconds: float) -> None:
        """Learn from a page."""
        if seconds < SHORT:
            self.rows = min(2 * self.rows, self._largest)
        elif seconds > LONG:
            self.rows = max(self.rows // 2, 1)


async def walk(
    step: Step[W], pace: Pace, budget: Budget | None = None, *, waits: Sequence[float] = PATIENCE
) -> AsyncIterator[W]:
    """Return page after page until the last, or until the budget is over.

    A page that the store did not answer for is asked again, after each of the `waits` in seconds.

    Raises:
        StoreUnavailable: a page failed again and again.
    """
    after: Position | None = None
    while budget is None or not budget.is_over:
        rows, page = await _patiently(step, after, pace, waits)
        yield page
        if page.examined < rows or page.end is None:
            return
        after = page.end


async def _patiently(
    step: Step[W], after: Position | None, pace: Pace, pauses: Sequence[float]
) -> tuple[int, W]:
    waits = iter(pauses)
    while True:
        rows, began = pace.rows, time.monotonic()
        try:
            page = await step(after, rows)
        except StoreUnavailable as error:
            # A statement that was cut off for its length, or a database that restarts: both pass.
            wait = next(waits, None)
            if wait is None:
                raise
            logger.warning("a page of history is asked again", rows=rows, error=str(error))
            pace.rows = max(rows // 4, 1)
            await asyncio.sleep(wait)
            continue
        pace.took(time.monotonic() - began)
        return rows, page
