"""What stores are given and answer with, as plain values; what they can do with them is in `protocols`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from durable_jobs.jobs import ClaimedJob, Job
from durable_jobs.states import JobState


class Registered(NamedTuple):
    """Answer to a registration: the job, and whether this call made it."""

    job: Job
    created: bool


class JobFilter(NamedTuple):
    """What `list_jobs` shows; a missing part does not filter."""

    states: tuple[JobState, ...] = ()
    job_type: str | None = None
    queue: str | None = None
    since: datetime | None = None
    retryable: bool | None = None
    submitted_by: str | None = None


class Cursor(NamedTuple):
    """Where the next page begins: behind this row, newest first."""

    created_at: datetime
    """When it was made; in a list of failed jobs, when it failed."""
    job_id: UUID


class Page(NamedTuple):
    """One page of jobs, without their payloads and results."""

    jobs: list[Job]
    next: Cursor | None


class Front(NamedTuple):
    """How far claims of one tenant and rank have come: nothing before `run_at` waits there."""

    tenant_id: str
    claim_order: int
    run_at: datetime


class Claim(NamedTuple):
    """Answer to a claim, in the order in which the jobs are to run, and where it came to."""

    jobs: list[ClaimedJob]
    fronts: list[Front]


class Executor(NamedTuple):
    """One process that claims and executes; `executor_id` is fresh for each."""

    executor_id: UUID
    host: str
    pid: int
    queues: tuple[str, ...]
    flow_run_id: UUID | None = None
    in_crew: bool = True
    job_types: tuple[str, ...] | None = None
    """What it executes; None for one that does not say, which counts as everything."""

    def executes(self, job_type: str) -> bool:
        """Tell whether jobs of a type are in good hands here."""
        return self.job_types is None or job_type in self.job_types


class ExecutorView(NamedTuple):
    """An executor as the store knows it."""

    executor: Executor
    started_at: datetime
    last_seen_at: datetime
    silence: timedelta
    """Since the last beat, by the store's clock."""
    idle: bool
    draining: bool
    held: dict[str, int]
    """Part of each queue's concurrency that it holds."""


class QueueUse(NamedTuple):
    """What an executor tells of a queue when it asks for its part of the concurrency."""

    queue: str
    concurrency: int
    in_flight: int


class HeldJob(NamedTuple):
    """A RUNNING row of an executor, for its own audit."""

    job_id: UUID
    claim_token: UUID
    tenant_id: str
    cancel_requested: bool
    overdue: bool


class Unwritten(NamedTuple):
    """An outcome that was not written: `repeated` is harmless, `late` was fenced off."""

    job_id: UUID
    why: str


class Decision(NamedTuple):
    """What becomes of an orphan: `replay`, or failed with the reason."""

    replay: bool
    reason: str = "stalled"
    retryable: bool = True
    charged: bool = True
    """Whether the crash counts against the job; it does not when the job ran no code that could crash."""


class Note(NamedTuple):
    """What a running execution reports."""

    job: ClaimedJob
    progress: str | None = None
    task_run_id: UUID | None = None


class NewEvent(NamedTuple):
    """An event for the outbox; without a tenant it belongs to the system."""

    event: str
    severity: str
    payload: Mapping[str, Any]
    tenant_id: str | None = None
    job_id: UUID | None = None


class QueueCount(NamedTuple):
    """How many jobs of a type are live or dead letters, and since when the oldest waits."""

    queue: str
    job_type: str
    state: JobState
    jobs: int
    oldest_run_at: datetime | None


class StalledQueue(NamedTuple):
    """A queue whose oldest due job waits for too long."""

    queue: str
    pending: int
    waited: timedelta


class Paused(NamedTuple):
    """A queue or a job type that is held back."""

    kind: str
    name: str
    since: datetime
    by: str | None


class LoneJob(NamedTuple):
    """A waiting job that is to run in a flow run of its own."""

    tenant_id: str
    job_id: UUID
    queue: str
    dispatch_count: int
    flow_run_id: UUID | None


class RemovedExecutor(NamedTuple):
    """An executor that is dead and settled, and the flow run it was."""

    executor_id: UUID
    flow_run_id: UUID | None
