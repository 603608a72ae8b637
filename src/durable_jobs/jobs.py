"""A job as its row tells it, and the small views of it that the hot path carries."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from durable_jobs.moments import Moment
from durable_jobs.states import JobState, is_terminal


class Job(BaseModel):
    """One row of `job_history`, without the columns that only the store needs."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    job_id: UUID
    tenant_id: str
    job_type: str
    queue: str
    state: JobState
    priority: int
    run_at: Moment
    payload: Any = None
    payload_version: int
    result: Any = None
    failed_reason: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    submitted_by: str | None = None
    retryable: bool
    retry_count: int
    max_retries: int
    parent_job_id: UUID | None = None
    retry_child_id: UUID | None = None
    root_job_id: UUID
    replay_of: UUID | None = None
    claim_count: int
    crash_count: int
    dispatch_count: int
    executor_id: UUID | None = None
    flow_run_id: UUID | None = None
    task_run_id: UUID | None = None
    deadline_at: Moment | None = None
    cancel_requested_at: Moment | None = None
    progress: Any = None
    created_at: Moment
    started_at: Moment | None = None
    completed_at: Moment | None = None
    updated_at: Moment

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can change this row any more."""
        return is_terminal(self.state, retryable=self.retryable)

    def as_json(self, *, brief: bool = False) -> dict[str, Any]:
        """Return the camelCase object that the API and `--json` show; brief leaves the big columns out."""
        left_out = {"payload", "result"} if brief else set()
        return self.model_dump(mode="json", by_alias=True, exclude=left_out)


class NewJob(NamedTuple):
    """A validated request, ready to be inserted."""

    job_id: UUID
    job_type: str
    queue: str
    max_pending: int | None
    payload: str
    payload_version: int
    payload_hash: str
    max_retries: int
    retryable: bool
    timeout: timedelta
    priority: int = 0
    run_at: datetime | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    submitted_by: str | None = None


class ClaimedJob(NamedTuple):
    """What an executor needs of a job that it claimed."""

    job_id: UUID
    claim_token: UUID
    tenant_id: str
    job_type: str
    queue: str
    payload: str
    payload_version: int
    retry_count: int
    max_retries: int
    root_job_id: UUID
    correlation_id: str | None
    deadline_at: datetime
    timeout: timedelta


class Outcome(NamedTuple):
    """How one execution ended; written under the fence `claim_token`."""

    job: ClaimedJob
    state: JobState
    result: str | None = None
    failed_reason: str | None = None
    retryable: bool = True
    task_run_id: UUID | None = None
