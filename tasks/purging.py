"""The steps of a purge as Prefect tasks, and its end: an artifact, an event, a record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect import task
from prefect.artifacts import acreate_markdown_artifact
from prefect.cache_policies import NO_CACHE

from durable_jobs.errors import DurableJobsError
from durable_jobs.retention import Periods, PurgeRun, purge_run
from durable_jobs.stores.retention import RetentionStore
from durable_jobs.tasks.purge_reporting import purge_markdown
from durable_jobs.tasks.runtimes import OpenRuntime

ARTIFACT = "jobs-purge"


@asynccontextmanager
async def told_purge(
    runtime: OpenRuntime, periods: Periods, *, time_budget: timedelta, dry_run: bool, redis_prefix: str
) -> AsyncIterator[PurgeRun]:
    """Make a purge for the block; whatever ends the block is told in the artifact and by an event.

    Raises:
        RetentionTooShort, PurgeUnderWay, StoreUnavailable.
    """

    async def finish(
        run_id: UUID, *, fault: str | None, early: bool, payload: Mapping[str, Any]
    ) -> str | None:
        return await emit_purge_event(runtime.store, run_id, fault, early, payload)

    async with purge_run(
        runtime.store,
        runtime.settings,
        periods,
        time_budget=time_budget,
        dry_run=dry_run,
        redis_prefix=redis_prefix,
        finish=finish,
    ) as run:
        try:
            yield run
        except DurableJobsError as error:
            await leave_purge_artifact(run, str(error))
            raise
        await leave_purge_artifact(run, None)


@task(cache_policy=NO_CACHE, persist_result=False)
async def get_purgeable_jobs(run: PurgeRun) -> int:
    """Look at what is due, by tenant, type and state; return how many jobs."""
    return (await run.look()).total("due")


@task(cache_policy=NO_CACHE, persist_result=False)
async def purge_db_jobs(run: PurgeRun) -> int:
    """Purge jobs, effects and events page by page; return how many jobs went.

    Raises:
        PurgeRefused, StoreUnavailable.
    """
    return (await run.purge_db()).total


@task(cache_policy=NO_CACHE, persist_result=False)
async def purge_redis_jobs(run: PurgeRun) -> int:
    """Purge finished BullMQ jobs where a Redis is configured; return how many went."""
    return (await run.purge_redis()).gone


@task(cache_policy=NO_CACHE, persist_result=False)
async def verify_retention(run: PurgeRun) -> None:
    """Count again and prove that what is due went and nothing else.

    Raises:
        RetentionViolated: naming what is left, or what went too early.
    """
    await run.verify()


@task(cache_policy=NO_CACHE, persist_result=False)
async def emit_purge_event(
    store: RetentionStore, run_id: UUID, fault: str | None, early: bool, payload: Mapping[str, Any]
) -> str | None:
    """Record how the purge ended, with its event; return the event's name."""
    return await store.finish_purge(run_id, fault=fault, early=early, payload=payload)


async def leave_purge_artifact(run: PurgeRun, fault: str | None) -> None:
    """Leave the artifact `jobs-purge`: what went, what stays and why, history by age."""
    if run.before is not None:
        await acreate_markdown_artifact(
            key=ARTIFACT,
            markdown=purge_markdown(run, run.before, fault),
            description="What the last purge took, and what stays.",
        )
