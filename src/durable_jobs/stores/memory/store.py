"""InMemoryJobsStore: what callers of one tenant do, in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from durable_jobs.errors import IdempotencyConflict, NotAllowed, QueueFull
from durable_jobs.jobs import Job, NewJob
from durable_jobs.states import LIVE, JobState
from durable_jobs.stores.memory.effects import MemoryEffects
from durable_jobs.stores.memory.flow_runs import MemoryFlowRuns
from durable_jobs.stores.memory.outbox import MemoryOutbox
from durable_jobs.stores.memory.retention import MemoryRetention
from durable_jobs.stores.memory.rows import Row, time_of
from durable_jobs.stores.protocols import Cursor, JobFilter, Page, Registered, nothing_to_stop
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import storable_json

TELL_AGAIN = timedelta(minutes=1)


class InMemoryJobsStore(MemoryFlowRuns, MemoryOutbox, MemoryEffects, MemoryRetention):
    """Jobs in memory: the promises of the Postgres store for one process and one event loop."""

    async def register_idempotent(self, jobs: Sequence[NewJob]) -> list[Registered]:
        """Insert requests of one type; see `JobsStore.register_idempotent`."""
        tenant, at = required_tenant(), time_of(None)
        roots = [self._root(tenant, job.idempotency_key) for job in jobs]
        for job, root in zip(jobs, roots, strict=True):
            if root is not None and root.payload_hash != job.payload_hash:
                raise IdempotencyConflict(
                    f"idempotency key {job.idempotency_key!r}: the key is already used by job {root.job_id},"
                    " which has another type or other data; use a new key for a new request"
                )
        shard = None
        if wanted := sum(root is None for root in roots):
            shard = self._reserve(jobs[0].queue, jobs[0].max_pending, wanted)
        return [
            Registered(self._insert(tenant, job, shard, at).job(), True)
            if root is None
            else Registered(self._end_of_chain(root).job(), False)
            for job, root in zip(jobs, roots, strict=True)
        ]

    async def get(self, job_id: UUID) -> Job:
        """Return one job; see `JobsStore.get`."""
        return self.memory.mine(job_id).job()

    async def get_result(self, job_id: UUID) -> Any:
        """Return the result of a job; see `JobsStore.get_result`."""
        return self.memory.mine(job_id).job().result

    async def update(self, job_id: UUID, *, progress: Any = None, request_cancel: bool = False) -> Job:
        """Note progress or a cancel request; see `JobsStore.update`."""
        row, at = self.memory.mine(job_id), time_of(None)
        if request_cancel and row.state is JobState.PENDING:
            raise NotAllowed(nothing_to_stop(job_id))
        if row.state in LIVE:
            row.progress = row.progress if progress is None else json.loads(storable_json(progress))
            if request_cancel and row.cancel_requested_at is None:
                row.cancel_requested_at = at
            row.updated_at = at
        return row.job()

    async def list_jobs(self, wanted: JobFilter, *, after: Cursor | None = None, limit: int = 50) -> Page:
        """Return a page, newest first; see `JobsStore.list_jobs`."""
        rows = sorted(self.memory.of(required_tenant()), key=_age, reverse=True)
        found = [row for row in rows if _matches(row, wanted) and (after is None or _age(row) < after)]
        shown = [row.job(brief=True) for row in found[:limit]]
        more = len(found) > limit
        return Page(shown, Cursor(shown[-1].created_at, shown[-1].job_id) if more else None)

    async def list_failed(self, wanted: JobFilter, *, after: Cursor | None = None, limit: int = 50) -> Page:
        """Return a page of failed jobs; see `JobsStore.list_failed`."""
        every = self.memory.of(required_tenant())
        resubmitted = {row.replay_of for row in every}
        failed = [(row, _end(row)) for row in every if row.state is JobState.FAILED]
        found = sorted(
            (
                (end, row)
                for row, end in failed
                if _fits(row, wanted, end[0], resubmitted) and (after is None or end < after)
            ),
            key=itemgetter(0),
            reverse=True,
        )
        shown = found[:limit]
        jobs = [row.job(brief=True) for _, row in shown]
        return Page(jobs, Cursor(*shown[-1][0]) if len(found) > limit else None)

    def _reserve(self, queue: str, bound: int | None, wanted: int) -> int | None:
        try:
            return self.memory.reserve(queue, bound, wanted)
        except QueueFull:
            at, told = time_of(None), self.memory.told_full.get(queue)
            if told is None or at - told >= TELL_AGAIN:
                self.memory.told_full[queue] = at
                payload = {"queue": queue, "maxPending": bound, "pending": self.memory.pending.get(queue, 0)}
                self.memory.add_event("jobs.queue.full", "WARNING", payload, None, None, at)
            raise

    def _root(self, tenant: str, key: str | None) -> Row | None:
        if key is None:
            return None
        rows = self.memory.of(tenant)
        return next((row for row in rows if row.is_root and row.idempotency_key == key), None)

    def _end_of_chain(self, row: Row) -> Row:
        while row.retry_child_id is not None:
            row = self.memory.jobs[row.retry_child_id]
        return row

    def _insert(self, tenant: str, job: NewJob, shard: int | None, at: datetime) -> Row:
        row = Row(
            job.job_id,
            tenant,
            job.job_type,
            job.queue,
            job.priority,
            job.run_at or at,
            json.loads(job.payload),
            job.payload_version,
            job.payload_hash,
            job.retryable,
            job.max_retries,
            job.timeout,
            job.job_id,
            at,
            at,
            idempotency_key=job.idempotency_key,
            correlation_id=job.correlation_id,
            submitted_by=job.submitted_by,
            pending_shard=shard,
        )
        self.memory.jobs[job.job_id] = row
        self.memory.wake(row.queue)
        return row


def _age(row: Row) -> tuple[datetime, UUID]:
    return row.created_at, row.job_id


def _matches(row: Row, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or row.state in wanted.states)
        and wanted.job_type in (None, row.job_type)
        and wanted.queue in (None, row.queue)
        and (wanted.since is None or row.created_at >= wanted.since)
        and wanted.retryable in (None, row.retryable)
        and wanted.submitted_by in (None, row.submitted_by)
    )


def _end(row: Row) -> tuple[datetime, UUID]:
    return row.completed_at or row.updated_at, row.job_id


def _fits(row: Row, wanted: JobFilter, end: datetime, resubmitted: Collection[UUID | None]) -> bool:
    return (
        wanted.job_type in (None, row.job_type)
        and (wanted.since is None or end >= wanted.since)
        and wanted.retryable in (None, row.retryable and row.job_id not in resubmitted)
        and wanted.submitted_by in (None, row.submitted_by)
    )
