"""What flows and people on duty do with jobs in Postgres; see `JobsOperator`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from uuid_utils.compat import uuid7

from durable_jobs.errors import JobNotFound, NotAllowed, QueueFull
from durable_jobs.jobs import ClaimedJob, Job, Outcome
from durable_jobs.states import JobState
from durable_jobs.stores.postgres.database import Database
from durable_jobs.stores.postgres.duty import PgDuty
from durable_jobs.stores.postgres.statements import (
    CLAIM,
    CLAIM_ONE,
    FINISH,
    RECORD_EVENTS,
    event_params,
    read_claimed,
)
from durable_jobs.stores.protocols import (
    Claim,
    Decision,
    Fenced,
    Front,
    HeldJob,
    NewEvent,
    Note,
    QueueCount,
    StalledQueue,
    Unwritten,
)
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import clean, storable_json


class PgOperator(PgDuty):
    """Claims, outcomes and what people ask for."""

    def __init__(self, database: Database) -> None:
        """Use a database that the caller opens."""
        super().__init__(database)

    async def claim(
        self,
        executor_id: UUID,
        queue: str,
        limit: int,
        *,
        after_tenant: str = "",
        fronts: Sequence[Front] | None = None,
        now: datetime | None = None,
    ) -> Claim:
        """Take due jobs of a queue."""
        rows: list[Any] = await self._db.fetch(
            CLAIM,
            {
                "executor": executor_id,
                "queue": queue,
                "limit": limit,
                "after": after_tenant,
                "fronts": None if fronts is None else json.dumps(fronts, default=str),
                "now": now,
            },
        )
        # The last row of a tenant and rank is where the next claim of it may begin.
        reached = {(row[2], row[13]): row for row in rows}
        fronts = [Front(row[2], row[13], row[14]) for row in reached.values()]
        return Claim([read_claimed(row) for row in rows], fronts)

    async def claim_job(
        self, executor_id: UUID, tenant_id: str, job_id: UUID, *, now: datetime | None = None
    ) -> ClaimedJob | None:
        """Take one waiting job by its id."""
        rows: list[Any] = await self._db.fetch(
            CLAIM_ONE, {"executor": executor_id, "tenant": tenant_id, "job_id": job_id, "now": now}
        )
        return read_claimed(rows[0]) if rows else None

    async def finish(self, outcomes: Sequence[Outcome], *, now: datetime | None = None) -> list[Unwritten]:
        """Write outcomes under their fences."""
        rows: list[Any] = await self._db.fetch(
            FINISH,
            {
                "tenants": list({outcome.job.tenant_id for outcome in outcomes}),
                "outcomes": "[" + ",".join(_outcome(n, o) for n, o in enumerate(outcomes)) + "]",
                "now": now,
            },
        )
        return [Unwritten(job_id, why) for job_id, why in rows]

    async def release(
        self, jobs: Sequence[tuple[Fenced, bool]], reason: str, *, now: datetime | None = None
    ) -> None:
        """Give running jobs back."""
        await self._db.fetch(
            "SELECT * FROM release_jobs(%(tenants)s::text[], %(jobs)s::jsonb, %(reason)s, %(now)s)",
            {
                "tenants": list({job.tenant_id for job, _ in jobs}),
                "jobs": json.dumps(
                    [
                        {"job_id": str(job.job_id), "claim_token": str(job.claim_token), "replay": replay}
                        for job, replay in jobs
                    ]
                ),
                "reason": clean(reason),
                "now": now,
            },
        )

    async def note(self, notes: Sequence[Note]) -> None:
        """Write progress and task run ids of running jobs."""
        documents = [
            {
                "job_id": str(note.job.job_id),
                "claim_token": str(note.job.claim_token),
                "progress": None if note.progress is None else json.loads(note.progress),
                "task_run_id": None if note.task_run_id is None else str(note.task_run_id),
            }
            for note in notes
        ]
        await self._db.fetch(
            "SELECT note_progress(%(tenants)s::text[], %(notes)s::jsonb, NULL)",
            {"tenants": list({note.job.tenant_id for note in notes}), "notes": storable_json(documents)},
        )

    async def held(self, executor_id: UUID) -> list[HeldJob]:
        """Return what an executor holds."""
        rows: list[Any] = await self._db.fetch(
            "SELECT job_id, claim_token, tenant_id, cancel_requested, overdue FROM held_jobs(%(executor)s)",
            {"executor": executor_id},
        )
        return [HeldJob._make(row) for row in rows]

    async def fail_overdue(
        self, *, margin: timedelta, tenant: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[UUID]:
        """Fail running jobs past their deadline."""
        rows: list[Any] = await self._db.fetch(
            "SELECT fail_overdue(%(margin)s, %(tenant)s, %(limit)s, %(now)s)",
            {"margin": margin, "tenant": tenant, "limit": limit, "now": now},
        )
        return [row[0] for row in rows]

    async def cancel(self, job_id: UUID, *, by: str | None = None, now: datetime | None = None) -> Job:
        """Cancel a waiting or failed job, ask a running one to stop."""
        before = await self._job("SELECT * FROM get_job(%(tenant)s, %(job_id)s)", job_id)
        job = await self._job(
            "SELECT * FROM cancel_job(%(tenant)s, %(job_id)s, %(by)s, %(now)s)", job_id, by=by, now=now
        )
        if before.is_terminal or (job.is_terminal and job.state is not JobState.CANCELLED):
            raise NotAllowed(f"job {job_id} is {job.state}, which is final: there is nothing to cancel")
        return job

    async def retry(
        self,
        job_id: UUID,
        *,
        max_pending: int | None,
        by: str | None = None,
        run_at: datetime | None = None,
        now: datetime | None = None,
    ) -> Job:
        """Make the one retry of a failed job."""
        job = await self._made(
            "SELECT * FROM retry_job("
            "%(tenant)s, %(job_id)s, %(new)s, %(max_pending)s, %(run_at)s, %(by)s, %(now)s)",
            job_id,
            max_pending,
            run_at=run_at,
            by=by,
            now=now,
        )
        if job.job_id == job_id and job.state is not JobState.ABANDONED:
            why = (
                "not retryable, or was resubmitted"
                if job.state is JobState.FAILED
                else f"{job.state}, not FAILED"
            )
            raise NotAllowed(f"job {job_id} cannot be retried: it is {why}")
        return job

    async def resubmit(
        self,
        job_id: UUID,
        *,
        max_pending: int | None,
        retryable: bool = True,
        by: str | None = None,
        now: datetime | None = None,
    ) -> Job:
        """Make a new root of a failed or abandoned job."""
        job = await self._made(
            "SELECT * FROM resubmit_job("
            "%(tenant)s, %(job_id)s, %(new)s, %(max_pending)s, %(retryable)s, %(by)s, %(now)s)",
            job_id,
            max_pending,
            retryable=retryable,
            by=by,
            now=now,
        )
        if job.job_id == job_id:
            raise NotAllowed(f"job {job_id} is {job.state}: only FAILED and ABANDONED jobs are resubmitted")
        return job

    async def settle_orphans(
        self,
        tenant_id: str,
        silent: Sequence[UUID],
        decide: Callable[[Job], Decision | None],
        *,
        max_crashes: int,
        skip: Collection[UUID] = (),
        limit: int = 10,
        now: datetime | None = None,
    ) -> dict[UUID, JobState]:
        """Lock orphans, decide, and settle them in the same transaction."""

        async def settle(connection: psycopg.AsyncConnection[Any]) -> dict[UUID, JobState]:
            async with connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(
                    "SELECT * FROM lock_orphans(%s, %s::uuid[], %s::uuid[], %s)",
                    [tenant_id, list(silent), list(skip), limit],
                )
                rows = await cursor.fetchall()
                decided = [(row, decide(Job.model_validate(row))) for row in rows]
                decisions = [_decision(row, decision) for row, decision in decided if decision is not None]
                await cursor.execute(
                    "SELECT job_id, state FROM orphan_jobs(%s, %s::jsonb, %s, %s)",
                    [tenant_id, json.dumps(decisions), max_crashes, now],
                )
                return {row["job_id"]: JobState(row["state"]) for row in await cursor.fetchall()}

        return await self._db.in_transaction(settle)

    async def counts(self) -> list[QueueCount]:
        """Return how many jobs are live or dead letters."""
        rows: list[Any] = await self._db.fetch(
            "SELECT queue, job_type, state, jobs, oldest_run_at FROM count_jobs()", {}
        )
        return [QueueCount(queue, job_type, JobState(state), n, at) for queue, job_type, state, n, at in rows]

    async def tell_stalled(self, *, after: timedelta, now: datetime | None = None) -> list[StalledQueue]:
        """Return the queues whose oldest due job waits for longer."""
        rows: list[Any] = await self._db.fetch(
            "SELECT queue, pending, waited FROM tell_stalled(%(after)s, %(now)s)",
            {"after": after, "now": now},
        )
        return [StalledQueue._make(row) for row in rows]

    async def record_events(self, events: Sequence[NewEvent]) -> None:
        """Put events into the outbox."""
        await self._db.fetch(RECORD_EVENTS, event_params(events))

    async def _job(self, statement: str, job_id: UUID, **params: Any) -> Job:
        tenant = required_tenant()
        rows: list[dict[str, Any]] = await self._db.fetch(
            statement, {"tenant": tenant, "job_id": job_id, **params}, row_factory=dict_row
        )
        if not rows:
            raise JobNotFound(f"no job {job_id} in tenant {tenant!r}")
        return Job.model_validate(rows[0])

    async def _made(self, statement: str, job_id: UUID, max_pending: int | None, **params: Any) -> Job:
        try:
            return await self._job(statement, job_id, new=uuid7(), max_pending=max_pending, **params)
        except psycopg.Error as error:
            if error.sqlstate == "DJ002":
                queue = (error.diag.message_primary or "").removeprefix("queue ").removesuffix(" is full")
                raise QueueFull(queue, max_pending or 0) from error
            raise


def _outcome(n: int, outcome: Outcome) -> str:
    job = outcome.job
    reason = "null" if outcome.failed_reason is None else json.dumps(clean(outcome.failed_reason))
    shown = f',"task_run_id":"{outcome.task_run_id}"' if outcome.task_run_id is not None else ""
    return (
        f'{{"n":{n},"job_id":"{job.job_id}","claim_token":"{job.claim_token}","state":"{outcome.state}",'
        f'"result":{outcome.result or "null"},"failed_reason":{reason},'
        f'"retryable":{"true" if outcome.retryable else "false"}{shown}}}'
    )


def _decision(row: dict[str, Any], decision: Decision) -> dict[str, Any]:
    cleaned = decision._replace(reason=clean(decision.reason))
    return {"job_id": str(row["job_id"]), "claim_token": str(row["claim_token"]), **cleaned._asdict()}
