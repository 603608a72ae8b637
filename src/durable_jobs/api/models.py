"""The requests and answers of the API: camelCase, and nothing is accepted that is not known."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from durable_jobs.jobs import Job
from durable_jobs.registration import MAX_KEY
from durable_jobs.states import JobState


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time is out of the range of times") from error


def _text_only(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a time in ISO 8601 is expected, as a string")
    return value


Moment = Annotated[
    AwareDatetime,
    BeforeValidator(_text_only, json_schema_input_type=AwareDatetime),
    AfterValidator(_in_utc),
]
Label = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_KEY)]


class SubmitJob(_Model):
    """A request for a job."""

    type: Annotated[
        str, Field(strict=True, description="Name of a declared job type; GET /jobs/config has them.")
    ]
    data: Annotated[Any, Field(description="The payload, as the type's model says.")] = Field(
        default_factory=dict
    )
    idempotency_key: Annotated[
        Label | None, Field(description="Makes a repeated request return the same job; unique in the tenant.")
    ] = None
    correlation_id: Annotated[Label | None, Field(description="Any text, to find related work.")] = None
    priority: Annotated[int, Field(strict=True, ge=-100, le=100, description="Higher runs first.")] = 0
    run_at: Annotated[Moment | None, Field(description="Not before this time, with its time zone.")] = None


class SubmittedJob(_Model):
    """The answer to a submission."""

    job_id: UUID
    status: JobState


class ListedJob(Job):
    """A job in a list: without its payload and its result."""

    payload: Annotated[Any, Field(exclude=True)] = None
    result: Annotated[Any, Field(exclude=True)] = None


class JobList(_Model):
    """A page of jobs."""

    jobs: list[ListedJob]
    next_cursor: Annotated[str | None, Field(description="Where the next page begins; null at the end.")]


class Lineage(_Model):
    """Where a job comes from and where it went."""

    root_job_id: UUID
    parent_job_id: UUID | None
    retry_child_id: UUID | None
    replay_of: UUID | None
    current_job_id: Annotated[UUID, Field(description="The last retry of the chain, which has the say now.")]


class ToldEvent(_Model):
    """Something that was told of a job."""

    job_id: UUID
    event: str
    severity: str
    occurred_at: datetime
    by: str | None


class JobStatus(_Model):
    """How a job stands, small enough to be asked for again and again."""

    job_id: UUID
    job_type: str
    state: JobState
    terminal: Annotated[bool, Field(description="Whether nothing can change it any more.")]
    progress: Any
    failed_reason: str | None
    retry_count: int
    max_retries: int
    attempts_left: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    cancel_requested_at: datetime | None
    lineage: Lineage
    history: list[ToldEvent]


class JobChain(_Model):
    """The whole story of a job: every attempt, and what was resubmitted from or as it."""

    jobs: list[ListedJob]
    events: list[ToldEvent]
    attempts_left: int
    remains: str


class PausedThing(_Model):
    """A queue or a job type that is held back, or not any more."""

    kind: Literal["queue", "type"]
    name: str
    paused: bool
    since: datetime | None = None
    by: str | None = None


class LiveCount(_Model):
    """How many jobs of a type wait, run, or are dead letters."""

    queue: str
    job_type: str
    state: JobState
    jobs: int
    oldest_run_at: datetime | None


class LatelyCount(_Model):
    """How executions of a type ended in the last hour, and its dead letters."""

    job_type: str
    ended: int
    failed: int
    dead_letters: int
    at_limit: Annotated[int, Field(description="Dead letters that have had all their retries.")]
    oldest_dead_letter_at: datetime | None


class Stats(_Model):
    """The figures of the caller's tenant."""

    tenant_id: str
    pending: int
    running: int
    dead_letters: int
    oldest_pending_seconds: Annotated[
        float | None, Field(description="How long the oldest job that is due has waited.")
    ]
    counts: list[LiveCount]
    last_hour: list[LatelyCount]
    paused: list[PausedThing]


class PurgeableGroup(_Model):
    """Jobs of one type and state that are over their time."""

    tenant_id: str
    job_type: str
    state: JobState
    jobs: int
    bytes: int
    oldest: datetime
    youngest: datetime


class Purgeable(_Model):
    """What a purge would take now."""

    jobs_ended_before: datetime
    effects_made_before: datetime
    jobs: int
    bytes: int
    effects: int
    events: int
    kept_with_chain: Annotated[
        int, Field(description="Old jobs that stay because one of their chain is not due.")
    ]
    groups: list[PurgeableGroup]


class Purged(BaseModel):
    """What went, or in a dry run would go."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    target: Literal["db", "redis"]
    dry_run: bool
    jobs: int | None = None
    events: int | None = None
    effects: int | None = None
    bytes: int | None = None
    redis: int | None = None
    left: Annotated[int | None, Field(description="Jobs of Redis that are due and still there.")] = None
    jobs_ended_before: datetime | None = None
    effects_made_before: datetime | None = None
    tenants: int | None = None


class Worker(_Model):
    """An executor."""

    executor_id: UUID
    host: str
    pid: int
    state: Literal["working", "idle", "draining", "silent"]
    queues: list[str]
    job_types: Annotated[
        list[str] | None, Field(description="What it executes; null counts as everything.")
    ] = None
    held: dict[str, int]
    in_crew: bool
    flow_run_id: UUID | None
    started_at: datetime
    last_seen_at: datetime
    silence_seconds: float
    idle: bool
    draining: bool


class Workers(_Model):
    """Who is on duty."""

    healthy: Annotated[bool, Field(description="Whether somebody claims jobs.")]
    workers: list[Worker]


class RedisHealth(_Model):
    """How Redis is."""

    configured: bool
    healthy: bool
    targets: list[dict[str, Any]]


class Configuration(BaseModel):
    """Queues, job types with the schemas of their payloads, policies; settings for people on duty."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    settings: dict[str, Any] | None = None
    queues: list[dict[str, Any]]
    job_types: list[dict[str, Any]]
    policies: dict[str, Any]
