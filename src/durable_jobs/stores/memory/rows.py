"""What the memory holds: one `Row` for each job, and the small rules that every operation shares.

Invariant: an operation runs from its first look to its last change without giving the event loop
away, so it is as atomic as a transaction. One store belongs to one event loop.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from durable_jobs.effects.store import EffectState
from durable_jobs.errors import JobNotFound, QueueFull
from durable_jobs.jobs import ClaimedJob, Job
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Executor, Paused
from durable_jobs.stores.retention import PurgeTotals
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import storable_json


@dataclass
class Row:
    """A row of `job_history`; the names are its columns."""

    job_id: UUID
    tenant_id: str
    job_type: str
    queue: str
    priority: int
    run_at: datetime
    payload: Any
    payload_version: int
    payload_hash: str
    retryable: bool
    max_retries: int
    timeout: timedelta
    root_job_id: UUID
    created_at: datetime
    updated_at: datetime
    state: JobState = JobState.PENDING
    result: Any = None
    failed_reason: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    submitted_by: str | None = None
    retry_count: int = 0
    parent_job_id: UUID | None = None
    retry_child_id: UUID | None = None
    replay_of: UUID | None = None
    origin_job_id: UUID | None = None
    claim_token: UUID | None = None
    claim_count: int = 0
    crash_count: int = 0
    dispatch_count: int = 0
    pending_shard: int | None = None
    executor_id: UUID | None = None
    flow_run_id: UUID | None = None
    task_run_id: UUID | None = None
    deadline_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    progress: Any = None
    started_at: datetime | None = None
    completed_at: datetime | None = None

    @property
    def claim_order(self) -> int:
        """Rank of a claim: priority first, and first attempts before retries."""
        return -2 * self.priority + (self.retry_count > 0)

    @property
    def must_end_at(self) -> datetime:
        """When a running job should have ended: its deadline, or the request to cancel it."""
        deadline = self.claimed().deadline_at
        return deadline if self.cancel_requested_at is None else min(deadline, self.cancel_requested_at)

    @property
    def is_root(self) -> bool:
        """Whether it is a registered request, which owns its idempotency key."""
        return self.parent_job_id is None and self.replay_of is None

    def job(self, *, brief: bool = False) -> Job:
        """Return what callers see; a copy, so that nobody changes the row through it."""
        columns = vars(self) | ({"payload": None, "result": None} if brief else {})
        return Job.model_validate(copy.deepcopy(columns))

    def payload_text(self) -> str:
        """Return the payload as JSON text."""
        return json.dumps(self.payload, ensure_ascii=False)

    def claimed(self) -> ClaimedJob:
        """Return what the executor sees of a running job."""
        if self.claim_token is None or self.deadline_at is None:
            raise ValueError(f"job {self.job_id} is {self.state} and held by nobody")
        return ClaimedJob(
            self.job_id,
            self.claim_token,
            self.tenant_id,
            self.job_type,
            self.queue,
            self.payload_text(),
            self.payload_version,
            self.retry_count,
            self.max_retries,
            self.root_job_id,
            self.correlation_id,
            self.deadline_at,
            self.timeout,
        )

    def start(self, executor_id: UUID, at: datetime) -> None:
        """Go from PENDING to RUNNING under a new fence."""
        self.state, self.claim_token, self.executor_id = JobState.RUNNING, uuid4(), executor_id
        self.claim_count += 1
        self.started_at, self.deadline_at, self.updated_at = at, at + self.timeout, at
        self.pending_shard = None

    def wait_again(self, at: datetime) -> None:
        """Go from RUNNING back to PENDING; the fence falls."""
        self.state, self.claim_token, self.executor_id = JobState.PENDING, None, None
        self.started_at = self.deadline_at = None
        self.updated_at = at

    def end(self, state: JobState, at: datetime, reason: str | None = None) -> None:
        """Go to an end, or to FAILED."""
        self.state, self.failed_reason, self.completed_at, self.updated_at = state, reason, at, at


@dataclass
class OnDuty:
    """A row of `job_executors`."""

    executor: Executor
    started_at: datetime
    last_seen_at: datetime
    idle: bool = False
    draining: bool = False
    left_out: frozenset[str] = frozenset()


@dataclass
class EffectRow:
    """A row of `job_effects`; the names are its columns."""

    id: UUID
    tenant_id: str
    key: str
    effect_type: str
    job_id: UUID
    root_job_id: UUID
    state: EffectState
    reservation: UUID
    created_at: datetime
    claim_token: UUID | None = None
    confirmed_at: datetime | None = None
    result: Any = None


@dataclass
class PurgeRunRow:
    """A row of `purge_runs`."""

    run_id: UUID
    started_at: datetime
    jobs_before: datetime
    effects_before: datetime
    finished_at: datetime | None = None
    outcome: str | None = None
    fault: str | None = None
    totals: PurgeTotals = field(default_factory=lambda: PurgeTotals(0, 0, 0, 0))


@dataclass
class Memory:
    """Every table."""

    jobs: dict[UUID, Row] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    effects: dict[tuple[str, str, str], EffectRow] = field(default_factory=dict)
    executors: dict[UUID, OnDuty] = field(default_factory=dict)
    leases: dict[tuple[str, UUID], int] = field(default_factory=dict)
    paused: dict[tuple[str, str], Paused] = field(default_factory=dict)
    stalled: set[str] = field(default_factory=set)
    told_full: dict[str, datetime] = field(default_factory=dict)
    purge_runs: dict[UUID, PurgeRunRow] = field(default_factory=dict)
    positions: dict[str, datetime] = field(default_factory=dict)
    locks: set[str] = field(default_factory=set)
    listeners: list[tuple[Callable[[str], None], Callable[[str], None]]] = field(default_factory=list)

    def wake(self, queue: str) -> None:
        """Tell those who listen that a queue got work."""
        for on_queue, _ in self.listeners:
            on_queue(queue)

    def mine(self, job_id: UUID) -> Row:
        """Return a job of the scope's tenant.

        Raises:
            JobNotFound: there is none in this tenant.
        """
        tenant = required_tenant()
        row = self.jobs.get(job_id)
        if row is None or row.tenant_id != tenant:
            raise JobNotFound(f"no job {job_id} in tenant {tenant!r}")
        return row

    def fenced(self, job_id: UUID, claim_token: UUID) -> Row | None:
        """Return the running job that this claim holds."""
        row = self.jobs.get(job_id)
        held = row is not None and row.state is JobState.RUNNING and row.claim_token == claim_token
        return row if held else None

    def of(self, tenant: str) -> Iterator[Row]:
        """Return the jobs of a tenant."""
        return (row for row in self.jobs.values() if row.tenant_id == tenant)

    def in_state(self, state: JobState) -> list[Row]:
        """Return the jobs in a state, of all tenants."""
        return [row for row in self.jobs.values() if row.state is state]

    def reserve(self, queue: str, max_pending: int | None, wanted: int) -> int | None:
        """Take room for waiting jobs, and return what their rows keep as `pending_shard`.

        Raises:
            QueueFull: there is not enough.
        """
        if max_pending is None:
            return None
        waiting = self.pending.get(queue, 0)
        if waiting + wanted > max_pending:
            raise QueueFull(queue, max_pending, wanted)
        self.pending[queue] = waiting + wanted
        return 0

    def release(self, rows: Iterable[Row]) -> None:
        """Give back the room of jobs that wait no more."""
        for row in rows:
            if row.pending_shard is not None:
                self.pending[row.queue] -= 1
                row.pending_shard = None

    def tell(self, event: str, severity: str, row: Row, at: datetime, **more: Any) -> None:
        """Record an event of a job, never its payload."""
        payload = {
            "jobType": row.job_type,
            "queue": row.queue,
            "state": str(row.state),
            "reason": None if row.failed_reason is None else row.failed_reason[:500],
            "retryable": row.retryable,
            "retryCount": row.retry_count,
            "maxRetries": row.max_retries,
            "correlationId": row.correlation_id,
            "rootJobId": str(row.root_job_id),
        }
        self.add_event(f"jobs.job.{event}", severity, payload | more, row.tenant_id, row.job_id, at)

    def add_event(
        self,
        event: str,
        severity: str,
        payload: dict[str, Any],
        tenant_id: str | None,
        job_id: UUID | None,
        at: datetime,
    ) -> None:
        """Put an event into the outbox."""
        self.events.append(
            {
                "event_id": uuid4(),
                "tenant_id": tenant_id,
                "event": event,
                "job_id": job_id,
                "severity": severity,
                "payload": json.loads(storable_json(payload)),
                "occurred_at": at,
                "posted_at": None,
                "published_at": None,
            }
        )


def time_of(now: datetime | None) -> datetime:
    """Return the given time, or the present one."""
    return now if now is not None else datetime.now(UTC)
