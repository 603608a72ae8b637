"""Shifts that follow flow runs, and what their jobs look like meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from durable_jobs import JobState, register_job
from durable_jobs.executor.execution import Stop
from durable_jobs.executor.shift import Shift
from durable_jobs.flow_runs.job_type import NAME
from durable_jobs.jobs import Job
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.integration.flows.their_deployments import Theirs
from tests.support.eventually import eventually

QUEUE = "prefect-flow-runs"
LONG = timedelta(seconds=90)


def new_shift(runtime: OpenRuntime, **options: Any) -> Shift:
    # A shift that waits for its jobs would never end.
    settings = runtime.settings.model_copy(update={"shutdown_grace": timedelta(hours=1)})
    return Shift(runtime.store, runtime.registry, settings, **options)


@asynccontextmanager
async def on_duty(runtime: OpenRuntime) -> AsyncIterator[Shift]:
    """Have a shift execute while the block lasts."""
    shift = new_shift(runtime, queues=[QUEUE])
    task = asyncio.create_task(shift.run())
    try:
        yield shift
    finally:
        shift.leave("the test is over", Stop.SHUTDOWN)
        await task


async def submitted(deployment: str, **parameters: Any) -> Job:
    with job_tenant_scope("default"):
        return await register_job(NAME, {"deployment": deployment, "parameters": parameters})


async def read(runtime: OpenRuntime, job_id: UUID) -> Job:
    with job_tenant_scope("default"):
        return await runtime.store.get(job_id)


async def run_of(theirs: Theirs, job_id: UUID) -> FlowRun:
    [run] = await eventually(lambda: theirs.runs_of(job_id), LONG)
    return run


async def ended(runtime: OpenRuntime, job_id: UUID) -> Job:
    async def job() -> Job | None:
        found = await read(runtime, job_id)
        return found if found.completed_at is not None else None

    return await eventually(job, LONG)  # type: ignore[return-value] -- it has ended by then


async def followed(runtime: OpenRuntime, job_id: UUID) -> None:
    async def linked() -> bool:
        job = await read(runtime, job_id)
        return job.state is JobState.RUNNING and job.flow_run_id is not None

    await eventually(linked, LONG)
