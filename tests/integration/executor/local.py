"""Shifts in the test's own process, whose connections and answers a test can hold in its hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from durable_jobs.executor.execution import Stop
from durable_jobs.executor.shift import Shift
from durable_jobs.executor.summary import ShiftSummary
from durable_jobs.registry import Registry
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.database import Database
from tests.integration.executor.shifts import HEARTBEAT, STALE, Duty
from tests.support.eventually import eventually

TIMEOUT = timedelta(seconds=1)


class LocalShift:
    """One shift, working."""

    def __init__(self, shift: Shift, task: asyncio.Task[ShiftSummary]) -> None:
        self.shift = shift
        self.task = task

    @property
    def executor_id(self) -> UUID:
        return self.shift.executor.executor_id

    async def ended(self) -> ShiftSummary:
        """Wait for its end."""
        async with asyncio.timeout(90):
            return await self.task


class HeldAnswers(PgJobsStore):
    """A store whose answers can be held back: `hold["claim"]` is an event that the answer waits for."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.hold: dict[str, asyncio.Event] = {}
        self.answered: dict[str, int] = {}

    async def _after(self, name: str, answer: Any) -> Any:
        self.answered[name] = self.answered.get(name, 0) + 1
        if name in self.hold:
            await self.hold[name].wait()
        return answer

    async def held(self, *args: Any) -> Any:
        return await self._after("held", await super().held(*args))

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        claim = await super().claim(*args, **kwargs)
        return await self._after("claim", claim) if claim.jobs else claim

    async def finish(self, *args: Any, **kwargs: Any) -> Any:
        return await self._after("finish", await super().finish(*args, **kwargs))

    async def lease_queues(self, *args: Any, **kwargs: Any) -> Any:
        return await self._after("lease", await super().lease_queues(*args, **kwargs))


def local_store(
    url: str, kind: type[PgJobsStore] = PgJobsStore, *, timeout: timedelta = TIMEOUT
) -> PgJobsStore:
    """Return a store that gives up soon, and whose statements a proxy can read."""
    return kind(Database(url, timeout=timeout, pool_size=5, prepared_statements=False))


@asynccontextmanager
async def local_shift(
    duty: Duty,
    store: PgJobsStore,
    *,
    settings: dict[str, Any] | None = None,
    registry: Registry | None = None,
    **options: Any,
) -> AsyncIterator[LocalShift]:
    """Work one shift during the block; what it still runs then is dropped."""
    changed = {
        "heartbeat_interval": HEARTBEAT,
        "running_stale_after": STALE,
        "poll_interval": timedelta(seconds=0.2),
        "shutdown_grace": timedelta(seconds=0.3),
        "database_timeout": TIMEOUT,
    } | (settings or {})
    async with store:
        shift = Shift(store, registry or duty.registry, duty.settings.model_copy(update=changed), **options)
        task = asyncio.create_task(shift.run())
        await eventually(lambda: task.done() or duty.view(shift.executor.executor_id))
        try:
            yield LocalShift(shift, task)
        finally:
            shift.leave("the test is over", Stop.FENCED)
            await asyncio.wait([task], timeout=90)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
