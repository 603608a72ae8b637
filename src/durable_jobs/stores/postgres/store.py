"""PgJobsStore: what callers of one tenant do, in Postgres."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from durable_jobs.errors import JobNotFound, NotAllowed, QueueFull
from durable_jobs.jobs import Job, NewJob
from durable_jobs.settings import Settings
from durable_jobs.sql import load
from durable_jobs.states import JobState
from durable_jobs.stores.postgres.database import Database
from durable_jobs.stores.postgres.dead_letters import PgLetters
from durable_jobs.stores.postgres.effects import PgEffects
from durable_jobs.stores.postgres.flow_runs import PgFlowRuns
from durable_jobs.stores.postgres.full_queues import FullQueues
from durable_jobs.stores.postgres.gathering import Gathering
from durable_jobs.stores.postgres.heart import PgHeart
from durable_jobs.stores.postgres.outbox import PgOutbox
from durable_jobs.stores.postgres.readiness import require_ready
from durable_jobs.stores.postgres.reconciling import PgReconciler
from durable_jobs.stores.postgres.retention import PgRetention
from durable_jobs.stores.postgres.statements import (
    PURGED_MEANWHILE,
    REGISTER,
    in_parts,
    read_registered,
    refused,
    register_params,
)
from durable_jobs.stores.postgres.wakeups import listen
from durable_jobs.stores.protocols import Cursor, JobFilter, Page, QueueCount, Registered, nothing_to_stop
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import storable_json


class PgJobsStore(PgReconciler, PgLetters, PgFlowRuns, PgOutbox, PgEffects, PgRetention):
    """Jobs in Postgres; use it as an async context manager, or `open` and `close` it."""

    def __init__(self, database: Database) -> None:
        """Use a database that the caller opens."""
        super().__init__(database)
        self._gathering = Gathering(self._register)
        self._full = FullQueues(self._tell_full)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return a store for the settings' database; it still has to be opened.

        Raises:
            InvalidSettings: no database URL is set.
        """
        return cls(
            Database(
                settings.require_database_url(),
                timeout=settings.database_timeout,
                pool_size=settings.pool_size,
                prepared_statements=settings.prepared_statements,
            )
        )

    async def open(self, *, environment: str | None = None) -> None:
        """Allow calls; with an environment, first prove that the schema and the role are right.

        Raises:
            SchemaOutdated: the database is not migrated to this version.
            UnsafeDatabaseRole: the role bypasses row-level security (outside development).
            StoreUnavailable: the database does not answer.
        """
        await self._db.open()
        if environment is not None:
            await require_ready(self._db, environment)

    async def close(self) -> None:
        """Close every connection."""
        await self._gathering.close()
        await self._full.close()
        await self._db.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def heart(self, executor_id: UUID) -> PgHeart:
        """Return a way to beat from a thread, with a connection of its own."""
        return PgHeart(executor_id, self._db.options, self._db.timeout)

    async def listen(self, on_queue: Callable[[str], None], on_cancel: Callable[[str], None]) -> None:
        """Call back when a queue gets work or a job of an executor is cancelled, until cancelled."""
        await listen(self._db.options, on_queue, on_cancel)

    async def register_idempotent(self, jobs: Sequence[NewJob]) -> list[Registered]:
        """Insert requests of one type; see `JobsStore.register_idempotent`."""
        tenant = required_tenant()
        if len(jobs) == 1 and jobs[0].idempotency_key is None:
            return [await self._gathering.register(tenant, jobs[0])]
        return await self._register(tenant, jobs)

    async def _register(self, tenant: str, jobs: Sequence[NewJob]) -> list[Registered]:
        parts = in_parts(jobs)
        try:
            if len(parts) > 1:
                return await self._register_parts(tenant, parts)
            return await self._register_part(tenant, jobs)
        except QueueFull as error:
            self._full.refused(error)
            raise

    async def _register_part(self, tenant: str, jobs: Sequence[NewJob]) -> list[Registered]:
        try:
            rows = await self._registered(tenant, jobs)
        except psycopg.Error as error:
            raise refused(error, jobs) or error from error
        return read_registered(tenant, jobs, rows)

    async def _register_parts(self, tenant: str, parts: Sequence[Sequence[NewJob]]) -> list[Registered]:
        from durable_jobs.stores.postgres.within import StoreWithin  # SQLAlchemy loads slowly

        async def write(connection: psycopg.AsyncConnection[Any]) -> list[Registered]:
            return await StoreWithin(connection).register_parts(tenant, parts)

        return await self._db.in_transaction(write)

    async def _tell_full(self, why: QueueFull) -> None:
        await self._db.fetch(
            "SELECT tell_full(%(queue)s, %(bound)s, NULL)", {"queue": why.queue, "bound": why.max_pending}
        )

    async def get(self, job_id: UUID) -> Job:
        """Return one job; see `JobsStore.get`."""
        return await self._one("SELECT * FROM get_job(%(tenant)s, %(job_id)s)", job_id)

    async def get_result(self, job_id: UUID) -> Any:
        """Return the result of a job; see `JobsStore.get_result`."""
        return (await self.get(job_id)).result

    async def update(self, job_id: UUID, *, progress: Any = None, request_cancel: bool = False) -> Job:
        """Note progress or a cancel request; see `JobsStore.update`."""
        job = await self._one(
            "SELECT * FROM update_job(%(tenant)s, %(job_id)s, %(progress)s::jsonb, %(cancel)s, NULL)",
            job_id,
            progress=None if progress is None else storable_json(progress),
            cancel=request_cancel,
        )
        if request_cancel and job.state is JobState.PENDING:
            raise NotAllowed(nothing_to_stop(job_id))
        return job

    async def list_jobs(self, wanted: JobFilter, *, after: Cursor | None = None, limit: int = 50) -> Page:
        """Return a page, newest first; see `JobsStore.list_jobs`."""
        jobs = await self._listed("list_jobs", wanted, after, limit + 1)
        shown = jobs[:limit]
        more = len(jobs) > limit
        return Page(shown, Cursor(shown[-1].created_at, shown[-1].job_id) if more else None)

    async def list_failed(self, wanted: JobFilter, *, after: Cursor | None = None, limit: int = 50) -> Page:
        """Return a page of failed jobs; see `JobsStore.list_failed`."""
        jobs = await self._listed("list_failed", wanted, after, limit + 1)
        shown = jobs[:limit]
        if len(jobs) <= limit or shown[-1].completed_at is None:
            return Page(shown, None)
        return Page(shown, Cursor(shown[-1].completed_at, shown[-1].job_id))

    async def tenant_counts(self) -> list[QueueCount]:
        """Return how many jobs of the scope's tenant wait, run or are dead letters."""
        rows: list[Any] = await self._db.fetch(
            "SELECT queue, job_type, state, jobs, oldest_run_at FROM count_tenant_jobs(%(tenant)s)",
            {"tenant": required_tenant()},
        )
        return [QueueCount(queue, job_type, JobState(state), n, at) for queue, job_type, state, n, at in rows]

    async def _listed(self, statement: str, wanted: JobFilter, after: Cursor | None, limit: int) -> list[Job]:
        tenant = required_tenant()
        params = {
            "tenant": tenant,
            "states": [str(state) for state in wanted.states] or None,
            "job_type": wanted.job_type,
            "queue": wanted.queue,
            "since": wanted.since,
            "retryable": wanted.retryable,
            "submitted_by": wanted.submitted_by,
            "after_at": after.created_at if after else None,
            "after_id": after.job_id if after else None,
            "limit": limit,
        }

        async def read(connection: psycopg.AsyncConnection[Any]) -> list[dict[str, Any]]:
            await connection.execute("SELECT set_tenants(ARRAY[%s])", [tenant])
            async with connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(load(statement), params)
                return await cursor.fetchall()

        return [Job.model_validate(row) for row in await self._db.in_transaction(read)]

    async def _registered(self, tenant: str, jobs: Sequence[NewJob]) -> list[Any]:
        params = register_params(tenant, jobs)
        try:
            return await self._db.fetch(REGISTER, params)
        except psycopg.Error as error:
            if error.sqlstate != PURGED_MEANWHILE:
                raise
            return await self._db.fetch(REGISTER, params)

    async def _one(self, statement: str, job_id: UUID, **params: Any) -> Job:
        tenant = required_tenant()
        rows: list[dict[str, Any]] = await self._db.fetch(
            statement, {"tenant": tenant, "job_id": job_id, **params}, row_factory=dict_row
        )
        if not rows:
            raise JobNotFound(f"no job {job_id} in tenant {tenant!r}")
        return Job.model_validate(rows[0])
