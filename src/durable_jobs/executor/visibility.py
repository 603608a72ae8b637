"""Which jobs are shown as task runs: a Prefect server takes in only so many a second.

The executor knows nothing of Prefect: the flow gives it a `Show` that wraps an execution.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import structlog

from durable_jobs.jobs import ClaimedJob

_logger = structlog.get_logger(__name__)

Execute = Callable[[Any, UUID | None], Awaitable[Any]]
"""Runs the processor, given the logger to use and the id of the task run that shows it."""

Show = Callable[[ClaimedJob, Execute], Awaitable[None]]
"""Shows one execution to people: calls it once, and lets what it raises pass."""

_PENDING: Any = object()


async def shown(show: Show, job: ClaimedJob, execute: Execute) -> Any:
    """Execute under `show`. What the execution does counts; a fault in showing it changes nothing."""
    value: Any = _PENDING
    error: BaseException | None = None

    async def observed(logger: Any, task_run_id: UUID | None) -> None:
        nonlocal value, error
        try:
            value = await execute(logger, task_run_id)
        except BaseException as raised:
            error = raised
            raise

    try:
        await show(job, observed)
    except Exception as fault:  # noqa: BLE001 -- what shows is not the job's: it may fail as it likes
        if error is None:
            _logger.warning("a job is not shown", job_id=str(job.job_id), error=repr(fault))
    if error is not None:
        raise error
    return value if value is not _PENDING else await execute(None, None)


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
