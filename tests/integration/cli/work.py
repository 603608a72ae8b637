"""Job types for the tests of the command line, as a user writes them in one file."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from durable_jobs import JobContext, NotRetryable, Queue, job_type

narrow = Queue("narrow", concurrency=1, max_pending=2)
# A queue and a type may share a name.
both = Queue("both", max_pending=None)


class Note(BaseModel):
    """Text and a number that may be left out."""

    text: str
    times: int = 1


class Nothing(BaseModel):
    """A request without any fields."""


@job_type("ECHO", queue=both, max_retries=1, timeout=timedelta(minutes=1))
async def echo(request: Note, context: JobContext) -> str:
    """Return the text so many times."""
    return request.text * request.times


@job_type("BREAK", max_retries=1)
async def break_down(request: Note, context: JobContext) -> None:
    """Fail for a reason of its own."""
    raise ValueError(f"the disk of {request.text} is full")


@job_type("HOPELESS")
async def give_up(request: Note, context: JobContext) -> None:
    """Fail for good."""
    raise NotRetryable("there is no such thing")


@job_type("NARROW", queue="narrow")
async def squeeze(request: Nothing, context: JobContext) -> None:
    """Do nothing."""


@job_type("both", queue=both)
async def do_both(request: Nothing, context: JobContext) -> None:
    """Do nothing."""
