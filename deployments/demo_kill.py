"""The demo's accident: the shift is killed with -9 while it has jobs, and what follows is told.

Whether it really holds jobs is looked at while it is frozen, so that the blow never falls between two jobs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from durable_jobs.deployments.demo_prefect import DemoPrefect
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import ExecutorView, JobFilter

LOOK, FOLLOW, SETTLED = 0.01, 0.2, 0.1
# Each of them is run again in a flow run of its own, which takes seconds of a core.
MOST_JOBS = 4
RECONCILE = "jobs-reconcile/every-minute"


@dataclass(frozen=True)
class Recovery:
    """What the kill did, and how it was made good."""

    jobs: frozenset[UUID]
    """What the shift was executing."""
    took: timedelta
    """From the kill until the next shift was on duty and none of the jobs was left behind."""

    def __str__(self) -> str:
        return (
            f"{len(self.jobs)} jobs were being executed when their shift was killed (-9); they were run again, and"
            f" the next shift was on duty after {self.took.total_seconds():.0f} s"
        )


class ShiftKiller:
    """Kills the shift once, at work, and follows the recovery.

    Args:
        store: where the shift and its jobs are seen.
        prefect: the server whose next reconcile pass is asked for at once.
        stale_after: silence after which the shift counts as dead.
        tell: called with a sentence for people.
    """

    def __init__(
        self, store: PgJobsStore, prefect: DemoPrefect, stale_after: timedelta, tell: Callable[[str], None]
    ) -> None:
        self.has_struck = False
        self._may_strike = asyncio.Event()
        self._store = store
        self._prefect = prefect
        self._stale_after = stale_after
        self._tell = tell

    def let_strike(self) -> None:
        """From now on the next shift that is met at work is killed."""
        self._may_strike.set()

    async def run(self) -> Recovery:
        """Wait until it may strike, kill a shift at work, and return when all is made good."""
        await self._may_strike.wait()
        shift, jobs = await self._kill_one_at_work()
        killed = time.monotonic()
        self._tell(f"kill -9: the shift (process {shift.executor.pid}) is dead amid {len(jobs)} jobs")
        dead = shift.executor.executor_id
        await self._until(lambda: self._is_silent(dead))
        self._tell(
            "the dead shift is silent for long enough; jobs-reconcile runs now and not at its next minute"
        )
        await self._prefect.run_now(RECONCILE)
        await self._until(lambda: self._is_made_good(dead, jobs))
        recovery = Recovery(jobs, timedelta(seconds=time.monotonic() - killed))
        self._tell(
            f"{len(jobs)} jobs run again, a new shift is on duty after {recovery.took.total_seconds():.0f} s"
        )
        return recovery

    async def _kill_one_at_work(self) -> tuple[ExecutorView, frozenset[UUID]]:
        while True:
            await asyncio.sleep(LOOK)
            for view in await self._store.executors():
                if view.executor.in_crew and (jobs := await self._killed(view)):
                    self.has_struck = True
                    return view, jobs

    async def _killed(self, view: ExecutorView) -> frozenset[UUID]:
        """Freeze the process if it has a few jobs; kill it if it still has some then, and let it go on if not."""
        pid = view.executor.pid
        if not 0 < len(await self._running(view.executor.executor_id)) <= MOST_JOBS:
            return frozenset()
        try:
            os.kill(pid, signal.SIGSTOP)
            # What it had sent to Postgres before is committed meanwhile.
            await asyncio.sleep(SETTLED)
            jobs = await self._running(view.executor.executor_id)
            os.kill(pid, signal.SIGKILL if jobs else signal.SIGCONT)
        except ProcessLookupError:
            # It has just ended by itself.
            return frozenset()
        return jobs

    async def _running(self, executor_id: UUID) -> frozenset[UUID]:
        page = await self._store.list_jobs(JobFilter(states=(JobState.RUNNING,)), limit=500)
        return frozenset(job.job_id for job in page.jobs if job.executor_id == executor_id)

    async def _is_silent(self, executor_id: UUID) -> bool:
        views = [v for v in await self._store.executors() if v.executor.executor_id == executor_id]
        return all(view.silence > self._stale_after for view in views)

    async def _is_made_good(self, dead: UUID, jobs: frozenset[UUID]) -> bool:
        on_duty = [
            v for v in await self._store.executors() if v.executor.in_crew and v.executor.executor_id != dead
        ]
        return bool(on_duty) and not (jobs & await self._running(dead))

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        while not await condition():  # noqa: ASYNC110 -- other processes bring it about
            await asyncio.sleep(FOLLOW)
