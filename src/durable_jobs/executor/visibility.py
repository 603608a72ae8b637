"""Which jobs are shown as task runs: a Prefect server takes in only so many a second.

The executor knows nothing of Prefect: the flow gives it a `Show` that wraps an execution.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from durable_jobs.jobs import ClaimedJob

Execute = Callable[[Any, UUID | None], Awaitable[Any]]
"""Runs the processor, given the logger to use and the id of the task run that shows it."""

Show = Callable[[ClaimedJob, Execute], Awaitable[Any]]
"""Shows one execution to people, and returns or raises what the execution does."""


class RateCap:
    """A token bucket of one second's worth: lets through at most `per_second`, in bursts of that."""

    def __init__(self, per_second: float) -> None:
        """0 lets nothing through."""
        self._rate = per_second
        self._tokens = per_second
        self._at = time.monotonic()

    def allows(self) -> bool:
        """Take one token if there is one."""
        now = time.monotonic()
        self._tokens = min(max(self._rate, 1.0), self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._rate <= 0 or self._tokens < 1:
            return False
        self._tokens -= 1
        return True
