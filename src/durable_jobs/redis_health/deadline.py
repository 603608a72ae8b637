"""A probe's time, counted once from its start: steps share it, so none can make the whole late."""

from __future__ import annotations

import asyncio
from datetime import timedelta

PROBE_BUDGET = timedelta(seconds=2)
# What a probe keeps back to clean up and to hand over its answer before its time is over.
_RESERVE = 0.25


class Deadline:
    """The moment when a probe must have its answer, on the running loop's clock."""

    def __init__(self, budget: timedelta = PROBE_BUDGET) -> None:
        """Start counting."""
        self.budget = budget
        self._at = asyncio.get_running_loop().time() + max(budget.total_seconds() - _RESERVE, 0.0)

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(self._at - asyncio.get_running_loop().time(), 0.0)

    def limit(self, share: float = 1.0) -> asyncio.Timeout:
        """A timeout that ends with the deadline, or after a share of what is left."""
        return asyncio.timeout(self.left * share)

    def __str__(self) -> str:
        """The budget as a person says it."""
        return f"{self.budget.total_seconds():g} s"
