"""Job types for the tests of the API, as a user writes them in one file."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from durable_jobs import JobContext, NotRetryable, Queue, job_type

narrow = Queue("narrow", concurrency=1, max_pending=100)
wide = Queue("wide", max_pending=None)


class Note(BaseModel):
    """Text and a number that may be left out."""

    text: str
    times: int = 1


class Strict(BaseModel):
    """What only JSON can fill."""

    model_config = ConfigDict(strict=True)

    id: UUID
    parts: set[int] = set()


class Nothing(BaseModel):
    """A request without any fields."""


@job_type("ECHO", queue=wide, max_retries=1, timeout=timedelta(minutes=1))
async def echo(request: Note, context: JobContext) -> str:
    """Return the text so many times."""
    return request.text * request.times


@job_type("STRICT", queue=wide)
async def take_strictly(request: Strict, context: JobContext) -> None:
    """Do nothing."""


@job_type("BREAK", queue=wide, max_retries=1)
async def break_down(request: Note, context: JobContext) -> None:
    """Fail for a reason of its own."""
    raise ValueError(f"the disk of {request.text} is full")


@job_type("HOPELESS", queue=wide)
async def give_up(request: Note, context: JobContext) -> None:
    """Fail for good."""
    raise NotRetryable("there is no such thing")


@job_type("NARROW", queue=narrow)
async def squeeze(request: Nothing, context: JobContext) -> None:
    """Do nothing."""
