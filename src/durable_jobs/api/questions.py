"""What queries may ask: filters, pages, periods. A parameter that is not known is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from durable_jobs.errors import BadInput
from durable_jobs.states import JobState
from durable_jobs.written_times import Since, duration, since


def _since(value: Any) -> Since:
    if not isinstance(value, str):
        raise ValueError("a time or a duration is expected")
    try:
        return since("this", value)
    except BadInput as error:
        raise ValueError(str(error)) from error


def _duration(value: Any) -> timedelta:
    if not isinstance(value, str):
        raise ValueError("a duration is expected")
    try:
        return duration("this", value)
    except BadInput as error:
        raise ValueError(str(error)) from error


def _name(value: str) -> str:
    if "\0" in value:
        raise ValueError("no name has a NUL character")
    return value


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": "^[^\\x00]*$"})]
Lately = Annotated[Since, PlainValidator(_since, json_schema_input_type=str)]
Length = Annotated[timedelta, BeforeValidator(_duration, json_schema_input_type=str)]
_SINCE = "since a time (`2030-01-31T08:00:00Z`), or for a duration before now (`2h`, `P1D`)."


class _Question(BaseModel):
    """Parameters of a query; one that is not known is refused, since a misspelt filter shows too much."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")


class ListQuestion(_Question):
    """What every list takes."""

    limit: Annotated[int, Field(ge=1, le=1000, description="Jobs on a page.")] = 50
    cursor: Annotated[
        str | None,
        Field(max_length=1000, description="The nextCursor of the page before, with the same filters."),
    ] = None

    def asked(self) -> dict[str, Any]:
        """Return what a cursor of this question is good for."""
        # A duration moves with the clock, so it is not part of the question; the cursor goes on from its place.
        return self.model_dump(mode="json", exclude={"limit", "cursor", "since"})


class JobsQuestion(ListQuestion):
    """Filters of GET /jobs."""

    state: Annotated[list[JobState], Field(description="Only these states; repeat it for several.")] = []
    type: Annotated[Name | None, Field(description="Only this job type.")] = None
    queue: Annotated[Name | None, Field(description="Only this queue.")] = None
    since: Annotated[Lately | None, Field(description=f"Made {_SINCE}")] = None


class FailedQuestion(ListQuestion):
    """Filters of GET /jobs/failed."""

    retryable: Annotated[
        bool | None, Field(description="Only what can be retried now, or only what cannot.")
    ] = None
    job_type: Annotated[Name | None, Field(description="Only this job type.")] = None
    since: Annotated[Lately | None, Field(description=f"Failed {_SINCE}")] = None


class PurgeableQuestion(_Question):
    """What GET /jobs/purgeable takes."""

    older_than: Annotated[
        Length | None,
        Field(
            alias="olderThan",
            description="How long jobs are kept after their end: `30d`, `P14D`. Default 30d.",
        ),
    ] = None


class PurgeQuestion(PurgeableQuestion):
    """What DELETE /jobs/purge takes."""

    target: Annotated[
        Literal["db", "redis"], Field(description="Jobs of the tenant in Postgres, or BullMQ jobs in Redis.")
    ] = "db"
    older_than: Annotated[
        Length | None,
        Field(alias="olderThan", description="How long they are kept: `30d`. Default 30d, in Redis 7d."),
    ] = None
    dry_run: Annotated[bool, Field(alias="dryRun", description="Only say what would go.")] = False
