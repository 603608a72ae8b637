"""A job type for tests that register through the entry points."""

from pydantic import BaseModel

from durable_jobs import JobContext, job_type


class StoreNote(BaseModel):
    """Nothing to say."""


@job_type("STORE_NOTE")
async def store_note(request: StoreNote, context: JobContext) -> None:
    """Do nothing."""
