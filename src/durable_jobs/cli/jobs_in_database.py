"""Jobs as commands see them, in the database of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from durable_jobs.cli import arguments
from durable_jobs.cli.running import declared, user
from durable_jobs.cli.where import Jobs, Kind, Names, PurgeRequest, SubmitRequest
from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.errors import NotAllowed
from durable_jobs.jobs import Job
from durable_jobs.on_duty import as_document
from durable_jobs.registration import prepare, register_all
from durable_jobs.runtime import Runtime, current_runtime
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import JobFilter, Paused
from durable_jobs.tenants import job_tenant_scope
from durable_jobs.written_times import Since


@asynccontextmanager
async def jobs_in_database(tenant: str) -> AsyncIterator[Jobs]:
    """Open the store of this process in a tenant's scope; close it whatever happens."""
    runtime = current_runtime()
    with job_tenant_scope(tenant):
        try:
            yield JobsInDatabase(runtime, await runtime.store())
        finally:
            await runtime.close()


class JobsInDatabase:
    """See `Jobs`."""

    def __init__(self, runtime: Runtime, store: PgJobsStore) -> None:
        """Use an open store."""
        self._runtime, self._store = runtime, store

    async def submit(self, request: SubmitRequest) -> UUID:
        """Validate and register a job."""
        prepared = prepare(
            declared(self._runtime),
            self._runtime.settings,
            request.job_type,
            request.document,
            idempotency_key=request.idempotency_key,
            correlation_id=request.correlation_id,
            priority=request.priority,
            run_at=request.run_at,
            submitted_by=user(),
        )
        return (await register_all(self._store, [prepared]))[0].job.job_id

    async def get(self, job_id: UUID) -> Job:
        """Return a job."""
        return await self._store.get(job_id)

    async def chain(self, job_id: UUID) -> tuple[list[Job], list[ChainEvent]]:
        """Return every job of a chain, and what was told of them."""
        jobs = await self._store.chain(job_id)
        return jobs, await self._store.chain_events([job.job_id for job in jobs])

    async def page(
        self, wanted: JobFilter, lately: Since, cursor: str | None, limit: int
    ) -> tuple[Sequence[Job], str | None]:
        """Return a page of jobs."""
        after = arguments.read_cursor(cursor)
        since = await lately.moment(self._store)
        page = await self._store.list_jobs(wanted._replace(since=since), after=after, limit=limit)
        return page.jobs, arguments.write_cursor(page.next)

    async def cancel(self, job_id: UUID) -> Job:
        """Cancel a job, or ask it to stop."""
        return await self._store.cancel(job_id, by=user())

    async def retry(self, job_id: UUID) -> Job:
        """Make the retry of a failed job.

        Raises:
            NotAllowed: also when it has had all its retries, and is ABANDONED by that.
        """
        known = await self._store.get(job_id)
        queue = declared(self._runtime).queue(known.queue)
        job = await self._store.retry(job_id, max_pending=queue.max_pending, by=user())
        if job.state is JobState.ABANDONED:
            raise NotAllowed(
                f"job {job_id} has had its {job.max_retries} retries and is ABANDONED now;"
                f" once the cause is removed: durable-jobs resubmit {job_id}"
            )
        return job

    async def resubmit(self, job_id: UUID) -> Job:
        """Submit a job anew."""
        known = await self._store.get(job_id)
        registry = declared(self._runtime)
        return await self._store.resubmit(
            job_id,
            max_pending=registry.queue(known.queue).max_pending,
            retryable=registry.job_type(known.job_type).retryable,
            by=user(),
        )

    async def names(self) -> Names:
        """Return what is declared."""
        registry = declared(self._runtime)
        return Names(registry.queues, registry.job_types)

    async def paused(self) -> list[Paused]:
        """Return what is held back."""
        return list(await self._store.paused())

    async def pause(self, kind: Kind, name: str) -> Paused:
        """Hold a queue or a type back."""
        await self._store.pause(kind, name, by=user())
        held = await self._store.paused()
        return next(paused for paused in held if (paused.kind, paused.name) == (kind, name))

    async def resume(self, kind: Kind, name: str) -> None:
        """Let a queue or a type go on.

        Raises:
            NotAllowed: it is not paused.
        """
        if not await self._store.resume(kind, name, by=user()):
            raise NotAllowed(f"{kind} {name!r} is not paused")

    async def workers(self) -> list[dict[str, Any]]:
        """Return the executors."""
        stale_after = self._runtime.settings.running_stale_after
        return [as_document(view, stale_after) for view in await self._store.executors()]

    async def config(self) -> dict[str, Any]:
        """Return the configuration of this process."""
        return configuration_here()

    async def purgeable(
        self, jobs: timedelta, effects: timedelta | None, tenants: Sequence[str] | None
    ) -> dict[str, Any]:
        """Return what a purge would take."""
        from durable_jobs.retention import Periods, look
        from durable_jobs.retention.figures import look_figures

        periods = Periods(jobs) if effects is None else Periods(jobs, effects)
        limits = await periods.limits(self._store, self._runtime.settings.min_retention)
        return look_figures(await look(self._store, limits, tenants=tenants))

    async def purge(self, request: PurgeRequest) -> dict[str, Any]:
        """Purge what is over its time, of some tenants or of all, and Redis with all."""
        from durable_jobs.retention import Periods, purge_run
        from durable_jobs.retention.bullmq import PREFIX
        from durable_jobs.retention.running import TIME_BUDGET

        asked = {"jobs": request.jobs, "effects": request.effects, "redis": request.redis}
        async with purge_run(
            self._store,
            self._runtime.settings,
            # Zero is said too, and refused.
            Periods(**{name: period for name, period in asked.items() if period is not None}),
            time_budget=TIME_BUDGET if request.time_budget is None else request.time_budget,
            dry_run=request.dry_run,
            redis_prefix=request.redis_prefix or PREFIX,
            tenants=request.tenants,
        ) as run:
            await run.look()
            await run.purge_db()
            await run.purge_redis()
            await run.verify()
        return run.figures()


def configuration_here() -> dict[str, Any]:
    """Return the configuration of this process; it needs no database."""
    from durable_jobs.configuration import describe  # SQLAlchemy loads slowly and only this needs it

    runtime = current_runtime()
    return describe(runtime.settings, declared(runtime))
