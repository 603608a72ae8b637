"""Stops what a shift still runs when it has to end, and gives it back to the store.

What has an outcome keeps it: only jobs whose code did not come to an end are given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import structlog

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor.execution import Execution, Stop
from durable_jobs.executor.outcomes import OutcomeWriter
from durable_jobs.executor.summary import ShiftSummary
from durable_jobs.jobs import ClaimedJob
from durable_jobs.stores.protocols import Fenced, JobsOperator

logger = structlog.get_logger(__name__)

SHUT_DOWN = "worker shut down"
UNWIND_S = 2.0
"""How long code may take to leave once it is asked to at the end."""


class Ending:
    """The end of a shift that does not wait for its jobs."""

    def __init__(
        self,
        store: JobsOperator,
        running: dict[UUID, Execution],
        writer: OutcomeWriter,
        summary: ShiftSummary,
    ) -> None:
        """`running` is the shift's own, by claim token."""
        self._store = store
        self._running = running
        self._writer = writer
        self._summary = summary

    async def stop_all(self, why: Stop) -> None:
        """Ask everything to stop, write what came to an end, and give the rest back."""
        left = list(self._running.values())
        for execution in left:
            execution.stop(why)
        tasks = [execution.task for execution in left if execution.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=UNWIND_S)
        # Late outcomes too: the store records them.
        await self._writer.drain(UNWIND_S)
        if why is not Stop.FENCED:
            await self._release([e for e in self._running.values() if not e.has_outcome])

    async def hand_over(self, settle: Callable[[ClaimedJob], None]) -> None:
        """Give back what only follows work that is done elsewhere: whoever claims it next goes on with it.

        `settle` forgets a job that was given back.
        """
        following = [
            e
            for e in self._running.values()
            if e.follows and not e.has_outcome and e.stopped in (None, Stop.SHUTDOWN)
        ]
        for execution in following:
            execution.stop(Stop.SHUTDOWN)
        tasks = [execution.task for execution in following if execution.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=UNWIND_S)
        given = [e for e in following if not e.has_outcome]
        if await self._release(given):
            for execution in given:
                settle(execution.job)

    async def _release(self, executions: list[Execution]) -> bool:
        given: list[tuple[Fenced, bool]] = [(e.job, e.declared.on_orphan == "replay") for e in executions]
        if not given:
            return True
        try:
            await self._store.release(given, SHUT_DOWN)
            self._summary.released += len(given)
        except StoreUnavailable as error:
            logger.warning("jobs are left to the reconciler", jobs=len(given), error=str(error))
            return False
        return True
