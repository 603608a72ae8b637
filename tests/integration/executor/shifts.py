"""Starts shifts in processes of their own, and looks at what they did."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from durable_jobs.jobs import Job
from durable_jobs.reconciling import Reconciler, ReconcileReport
from durable_jobs.registration import prepare, register_all
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.support.eventually import eventually

HEARTBEAT = timedelta(seconds=0.4)
STALE = timedelta(seconds=1.6)
TIMES = {
    "DURABLE_JOBS_HEARTBEAT_INTERVAL": "0.4",
    "DURABLE_JOBS_RUNNING_STALE_AFTER": "1.6",
    "DURABLE_JOBS_POLL_INTERVAL": "0.3",
    "DURABLE_JOBS_SHUTDOWN_GRACE": "0.5",
    "DURABLE_JOBS_DATABASE_TIMEOUT": "3",
}
MODULE = Path(__file__).with_name("job_types.py")
LONG = timedelta(seconds=30)


class ShiftProcess:
    """One shift, running."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def ended(self) -> dict[str, Any]:
        """Wait for its end and return its last line."""
        await eventually(lambda: not self.is_running, LONG)
        lines = self.log.read_text().splitlines()
        assert self.process.returncode == 0, "\n".join(lines[-30:])
        return dict(json.loads(lines[-1]))


class Duty:
    """Everything a test of shifts needs: the store, processes, the reconciler, the owner's eyes."""

    def __init__(self, store: PgJobsStore, url: str, owner: psycopg.Connection, folder: Path) -> None:
        self.store = store
        self.owner = owner
        self.registry = _registry()
        self.settings = Settings(
            database_url=url, heartbeat_interval=HEARTBEAT, running_stale_after=STALE, _env_file=None
        )
        self._url = url
        self._folder = folder
        self._processes: list[ShiftProcess] = []

    async def start(self, url: str | None = None, **options: Any) -> ShiftProcess:
        """Start a shift and wait until it is known."""
        shift = self._start("tests.integration.executor.program", json.dumps(options), url=url)
        await eventually(lambda: self.executor_of(shift) or not shift.is_running, LONG)
        return shift

    def start_pass(self) -> ShiftProcess:
        """Start a reconcile pass in a process of its own."""
        return self._start("tests.integration.executor.pass_program")

    def _start(self, *arguments: str, url: str | None = None) -> ShiftProcess:
        log = self._folder / f"process-{len(self._processes)}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DURABLE_JOBS_")}
        environment |= TIMES | {
            "DURABLE_JOBS_DATABASE_URL": url or self._url,
            "DURABLE_JOBS_MODULES": str(MODULE),
        }
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
            )
        shift = ShiftProcess(process, log)
        self._processes.append(shift)
        return shift

    def close(self) -> None:
        for shift in self._processes:
            if shift.is_running:
                shift.send(signal.SIGCONT)
                shift.kill()

    def executor_of(self, shift: ShiftProcess) -> UUID | None:
        row = self.owner.execute(
            "SELECT executor_id FROM job_executors WHERE pid = %s", [shift.pid]
        ).fetchone()
        return row[0] if row else None

    def view(self, executor_id: UUID) -> dict[str, Any] | None:
        """Return an executor's row."""
        with self.owner.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(
                "SELECT * FROM job_executors WHERE executor_id = %s", [executor_id]
            ).fetchone()

    async def submit(self, name: str, count: int = 1, *, tenant: str = "acme", **data: Any) -> list[UUID]:
        """Register jobs of a type."""
        jobs = [prepare(self.registry, self.settings, name, data) for _ in range(count)]
        with job_tenant_scope(tenant):
            return [registered.job.job_id for registered in await register_all(self.store, jobs)]

    async def get(self, job_id: UUID, tenant: str = "acme") -> Job:
        with job_tenant_scope(tenant):
            return await self.store.get(job_id)

    def states(self, ids: Sequence[UUID]) -> Counter[str]:
        rows = self.owner.execute("SELECT state FROM job_history WHERE job_id = ANY (%s)", [list(ids)])
        return Counter(row[0] for row in rows)

    async def until(self, ids: Sequence[UUID], state: str, deadline: timedelta = LONG) -> None:
        """Wait until all jobs are in a state."""
        await eventually(lambda: self.states(ids) == {state: len(ids)}, deadline)

    def traces(self, what: str = "began") -> Counter[UUID]:
        """Count the traces of each job."""
        rows = self.owner.execute("SELECT job_id FROM traces WHERE what = %s", [what])
        return Counter(row[0] for row in rows)

    def events(self, name: str) -> list[dict[str, Any]]:
        with self.owner.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("SELECT * FROM job_events WHERE event = %s", [name]).fetchall()

    def counters_equal_the_table(self) -> bool:
        row = self.owner.execute(
            "SELECT (SELECT coalesce(sum(pending), 0) FROM queue_pending)"
            " - (SELECT coalesce(sum(released), 0) FROM queue_pending_released)"
            " = (SELECT count(*) FROM job_history WHERE pending_shard IS NOT NULL)"
        ).fetchone()
        return bool(row and row[0])

    async def reconcile(self) -> ReconcileReport:
        return await Reconciler(self.store, self.registry, self.settings).run()

    async def reconcile_until_clear(self) -> None:
        """Run passes until no executor is dead any more."""

        async def clear() -> bool:
            await self.reconcile()
            return not await self.store.silent_executors(stale_after=STALE)

        await eventually(lambda: self.store.silent_executors(stale_after=STALE), LONG)
        await eventually(clear, LONG)

    async def reconcile_on(self) -> None:
        """Run passes until cancelled."""
        while True:
            await self.reconcile()
            await asyncio.sleep(0.1)


def _registry() -> Registry:
    from tests.integration.executor import job_types

    return Registry.from_modules([job_types])
