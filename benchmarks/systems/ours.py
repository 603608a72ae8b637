"""durable-jobs: validated payloads, durable history, row-level security, a bound on what waits."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Sequence

import psycopg
from pydantic import BaseModel

from benchmarks.systems.base import System
from durable_jobs import JobContext, Queue, job_tenant_scope, job_type, register_job, register_jobs
from durable_jobs.executor.shift import Shift
from durable_jobs.runtime import Runtime, install
from durable_jobs.settings import Settings
from durable_jobs.states import JobState

BENCH = Queue("bench", concurrency=1_000, max_pending=2_000_000)
SHOWN = Queue("shown", concurrency=50, max_pending=100_000)
_RATE = """
    SELECT count(*) / extract(epoch FROM max(completed_at) - min(started_at))
    FROM (SELECT started_at, completed_at FROM job_history WHERE completed_at IS NOT NULL
          ORDER BY completed_at DESC LIMIT %s)
"""
_HISTORY = """
    INSERT INTO job_history (job_id, tenant_id, job_type, queue, state, payload, payload_hash, root_job_id,
        result, claim_token, executor_id, created_at, started_at, completed_at, updated_at)
    SELECT id, 'default', 'BENCH', 'bench', 'SUCCEEDED', '{"at": 0, "note": "x"}', 'x', id,
        '{"status": "OK", "value": null}', id, id, at, at, at, at
    FROM (SELECT gen_random_uuid() AS id, now() - interval '30 days' * random() AS at
          FROM generate_series(1, %s)) AS done
"""
BACKLOG = 4_000
"""More than what is in flight: a claim that finds less than it asks for looks everywhere next time."""

_serving: Ours | None = None


class Ping(BaseModel):
    """A payload of two keys."""

    at: int
    note: str


@job_type("BENCH", queue=BENCH, visibility="history")
async def ping(request: Ping, context: JobContext) -> None:  # noqa: ARG001 -- the processor of a job type
    """Do nothing, but tell when."""
    if request.at and _serving is not None:
        _serving.picked_up(request.at)


@job_type("SHOWN", queue=SHOWN, visibility="task_run")
async def shown(request: Ping, context: JobContext) -> None:
    """Do nothing, as a task run."""


class Ours(System):
    """Everything through the public functions; drains by the flow `execute_jobs`."""

    async def open(self) -> None:
        global _serving
        self.runtime = install(Runtime(Settings.load(database_url=self.url)))
        self.store = await self.runtime.store()
        _serving = self

    async def close(self) -> None:
        await self.runtime.close()

    async def register(self) -> None:
        await register_job("BENCH", {"at": time.monotonic_ns(), "note": "x"})

    async def register_many(self, jobs: int) -> None:
        await register_jobs("BENCH", [{"at": 0, "note": "x"}] * jobs)

    async def register_shown(self, jobs: int) -> None:
        """Register jobs that are to be seen as task runs."""
        await register_jobs("SHOWN", [{"at": 0, "note": "x"}] * jobs)

    async def register_for_tenants(self, tenants: int, each: int) -> None:
        """Register for many tenants."""
        for tenant in range(tenants):
            with job_tenant_scope(f"tenant-{tenant:04}"):
                await self.register_many(each)

    async def drain(self, jobs: int) -> float:
        from durable_jobs.flows.execute_jobs import execute_jobs  # Prefect loads slowly

        await execute_jobs(until_empty=True, queues=["bench"])
        install(self.runtime)
        return self._rate(jobs)

    async def drain_shown(self, jobs: int) -> float:
        """Drain what is to be seen as task runs, with the cap lifted."""
        from durable_jobs.flows.execute_jobs import execute_jobs

        os.environ["DURABLE_JOBS_VISIBLE_TASK_RUNS_PER_SECOND"] = "100000"
        await execute_jobs(until_empty=True, queues=["shown"])
        install(self.runtime)
        return self._rate(jobs)

    async def drain_plainly(self, jobs: int) -> float:
        """Drain by a shift alone, without Prefect."""
        await self._shift(until_empty=True).run()
        return self._rate(jobs)

    async def serve(self) -> None:
        await self._shift(until_empty=False).run()

    async def fill_history(self, jobs: int) -> None:
        """Put finished jobs of a month into the history."""
        with psycopg.connect(self._admin, autocommit=True) as owner:
            owner.execute(_HISTORY, [jobs])
            owner.execute("VACUUM (ANALYZE) job_history")

    async def drain_live(self, jobs: int, last: int, held: bool) -> float:
        """Keep a short backlog until so many are done, and return the rate of the last half of the last jobs.

        With another session's snapshot held, the dead entries of all that is done stay in the indexes.
        """
        with psycopg.connect(self._admin, autocommit=not held) as other:
            if held:
                other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT count(*) FROM job_history WHERE state = 'PENDING'")
            shift = self._shift(until_empty=False)
            working = asyncio.create_task(shift.run())
            for registered in range(BACKLOG, jobs + 1, BACKLOG):
                await self.register_many(BACKLOG)
                await self._worked_off(shift, registered - BACKLOG // 2)
            await self._worked_off(shift, jobs)
            await self.register_many(last)
            await self._worked_off(shift, jobs + last)
            shift.leave("measured")
            await working
        return self._rate(last // 2)

    async def _worked_off(self, shift: Shift, jobs: int) -> None:
        give_up = time.monotonic() + 600
        while shift.summary.count(JobState.SUCCEEDED) < jobs:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{jobs:,} jobs are not done")
            await asyncio.sleep(0.005)

    async def clear(self) -> None:
        with psycopg.connect(self._admin, autocommit=True) as owner:
            owner.execute("DELETE FROM job_history WHERE state IN ('PENDING', 'RUNNING')")
            owner.execute("UPDATE queue_pending SET pending = 0")
            owner.execute("VACUUM (ANALYZE) job_history")

    async def memory(self) -> float:
        """Return what this process uses now (MiB)."""
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: ASYNC230, PTH123 -- /proc
            return int(statm.read().split()[1]) * resource.getpagesize() / 2**20

    def _shift(self, *, until_empty: bool, queues: Sequence[str] = ("bench",)) -> Shift:
        return Shift(
            self.store, self.runtime.registry, self.runtime.settings, queues=queues, until_empty=until_empty
        )

    def _rate(self, jobs: int) -> float:
        with psycopg.connect(self._admin) as owner:
            return float(owner.execute(_RATE, [jobs]).fetchone()[0])

    @property
    def _admin(self) -> str:
        return os.environ["BENCH_ADMIN_URL"]
