"""Tells of queues that refuse registrations: beside the refusal, which waits for nothing.

A refusal undoes its transaction, so its event needs one of its own. A queue that is full refuses thousands in a
second: each process asks the database once a minute, and the database tells once a minute for all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from durable_jobs.errors import DurableJobsError, QueueFull

logger = structlog.get_logger(__name__)

AGAIN = timedelta(minutes=1)

Tell = Callable[[QueueFull], Awaitable[object]]


class FullQueues:
    """Has each full queue told of, at most once a minute."""

    def __init__(self, tell: Tell) -> None:
        """`tell` records the event, unless another process has just done so."""
        self._tell = tell
        self._asked: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def refused(self, error: QueueFull) -> None:
        """Have it told that a queue refused a registration."""
        now = time.monotonic()
        if now - self._asked.get(error.queue, float("-inf")) < AGAIN.total_seconds():
            return
        self._asked[error.queue] = now
        task = asyncio.create_task(self._ask(error))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait until everything is told; no longer than a call to the database may take."""
        await asyncio.gather(*self._tasks)

    async def _ask(self, error: QueueFull) -> None:
        try:
            await self._tell(error)
        except DurableJobsError as fault:
            # The next refusal tries again.
            self._asked.pop(error.queue, None)
            logger.warning("a full queue could not be told of", queue=error.queue, error=str(fault))
