"""A store, processors of the test, and shifts that execute them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from durable_jobs import Job, job_type
from durable_jobs.executor.shift import Shift
from durable_jobs.executor.summary import ShiftSummary
from durable_jobs.job_types import MARK
from durable_jobs.queues import Queue
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.support.jobs import new_job
from tests.support.probes import PgProbe

TENANT = "acme"
QUEUE = Queue("effects", concurrency=10)


class Request(BaseModel):
    """What the tests' jobs are asked for."""

    what: str = "it"


class World:
    """One tenant's jobs with processors of the test."""

    def __init__(self, store: PgJobsStore, settings: Settings, probe: PgProbe) -> None:
        self.store, self.settings, self.probe = store, settings, probe
        self._types: dict[str, Any] = {}

    def declare(self, processor: Callable[..., Any], name: str = "WORK", **options: Any) -> None:
        """Make a processor a job type."""
        declared = job_type(name, queue=QUEUE, payload=Request, **({"visibility": "history"} | options))(
            processor
        )
        self._types[name] = getattr(declared, MARK)

    def shift(self) -> Shift:
        """Return a shift that ends when nothing is due."""
        registry = Registry.of(self._types.values(), [QUEUE])
        return Shift(self.store, registry, self.settings, until_empty=True)

    async def submit(self, name: str = "WORK", **changes: Any) -> Job:
        """Register one job."""
        data = {"what": changes.pop("what", "it")}
        new = new_job(data, job_type=name, queue=QUEUE.name, **changes)
        with job_tenant_scope(TENANT):
            return (await self.store.register_idempotent([new]))[0].job

    async def work(self) -> ShiftSummary:
        """Run a shift until nothing is due."""
        async with asyncio.timeout(60):
            return await self.shift().run()

    async def executed(self, name: str = "WORK", **changes: Any) -> Job:
        """Register a job, work, and return it as it is then."""
        job = await self.submit(name, **changes)
        await self.work()
        return await self.get(job)

    async def get(self, job: Job) -> Job:
        """Return the job as it is now."""
        with job_tenant_scope(TENANT):
            return await self.store.get(job.job_id)

    async def retried(self, job: Job) -> Job:
        """Retry a failed job, work, and return the retry."""
        with job_tenant_scope(TENANT):
            child = await self.store.retry(job.job_id, max_pending=None)
        assert child.parent_job_id == job.job_id
        await self.work()
        return await self.get(child)

    async def resubmitted(self, job: Job) -> Job:
        """Submit a failed job anew, work, and return the new one."""
        with job_tenant_scope(TENANT):
            root = await self.store.resubmit(job.job_id, max_pending=None)
        await self.work()
        return await self.get(root)

    def effects(self) -> list[tuple[str, str]]:
        """Return type and state of every effect."""
        return [(row["effect_type"], row["state"]) for row in self.probe.effects()]

    def events(self) -> list[str]:
        """Return the names of the events about effects."""
        return [e["event"] for e in self.probe.events() if e["event"].startswith("jobs.effect.")]

    def skipped(self, job: Job) -> dict[str, Any] | None:
        """Return what a skipped job says."""
        result = json.loads(json.dumps(job.result))
        return result["value"] if result and result["status"] == "SKIPPED" else None
