"""Job types for the tests of dead letters; nothing here works at first."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from durable_jobs import JobContext, job_type
from durable_jobs.queues import Queue

work = Queue("work", max_pending=None)
narrow = Queue("narrow", max_pending=30)


class Anything(BaseModel):
    """Takes any number."""

    n: int = 0


class Values(BaseModel):
    """Values that JSON does not know."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    day: date
    moment: datetime
    naive: datetime
    length: timedelta
    price: Decimal
    big: int
    raw: bytes
    identity: UUID
    members: set[int]
    pair: tuple[int, str]
    by_number: dict[int, str]


VALUES = Values(
    day=date(2031, 2, 3),
    moment=datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC),
    naive=datetime(2031, 2, 3, 4, 5),  # noqa: DTZ001 -- a value that must come back as it is
    length=timedelta(days=1, microseconds=1),
    price=Decimal("0.10"),
    big=2**64 + 1,
    raw=b"\x00\xff",
    identity=UUID(int=7),
    members={3, 1},
    pair=(1, "one"),
    by_number={5: "five"},
)
SEEN: list[Values] = []


@job_type("WORK", queue="work", max_retries=3)
async def fail_always(request: Anything, context: JobContext) -> None:
    """Fail."""
    raise ValueError(f"no {request.n}")


@job_type("NARROW", queue="narrow", max_retries=2, retry_backoff=timedelta(minutes=1))
async def fail_narrowly(request: Anything, context: JobContext) -> None:
    """Fail."""
    raise ValueError("no")


@job_type("ONCE", queue="work", max_retries=3)
async def fail_once(request: Values, context: JobContext) -> None:
    """Fail at first, succeed at the retry; remember what came."""
    SEEN.append(request)
    if len(SEEN) == 1:
        raise ValueError("not yet")


@job_type("REPLAYED", queue="work", on_orphan="replay")
async def go_on(request: Anything, context: JobContext) -> None:
    """Succeed, at whichever execution."""
