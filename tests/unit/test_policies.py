"""A job type takes what its policy says, unless its declaration says otherwise."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import BaseModel

from durable_jobs import JobContext, job_type
from durable_jobs.dead_letters.retrying import LONGEST_DELAY, Retrier
from durable_jobs.dead_letters.store import LockedLetter
from durable_jobs.errors import InvalidDeclaration
from durable_jobs.job_types import MARK, JobType
from durable_jobs.registry import Registry
from durable_jobs.stores.memory import InMemoryJobsStore


class Nothing(BaseModel):
    """No fields."""


def declared(name: str, **says: object) -> JobType:
    @job_type(name, **says)  # type: ignore[arg-type] -- what a declaration says varies
    async def processor(request: Nothing, context: JobContext) -> None: ...

    found: JobType = getattr(processor, MARK)
    return found


@pytest.mark.parametrize(
    ("name", "retries", "retryable"),
    [
        ("DOCUMENT_ARCHIVE", 3, True),
        ("BLOCKCHAIN_ANCHOR", 5, True),
        ("BLOCKCHAIN_VERIFY", 3, True),
        ("EXPORT_GLACIER", 5, True),
        ("EXPORT_ZIP", 3, True),
        ("PURGE_LEGAL", 2, True),
        ("PURGE_USER_REQUEST", 3, True),
        ("PRE_TRANSFER_B2B2C", 3, True),
        ("TRANSFER_COMPLETE", 0, False),
        ("NOTIFICATION_EMAIL", 2, True),
        ("NOTIFICATION_WEBHOOK", 3, True),
        ("ANYTHING_ELSE", 3, True),
    ],
)
def test_what_is_not_said_comes_from_the_policy(name: str, retries: int, retryable: bool) -> None:
    found = declared(name)
    assert (found.max_retries, found.retryable) == (retries, retryable)
    said = declared(name, max_retries=1, retryable=True)
    assert (said.max_retries, said.retryable) == (1, True)


def test_a_backoff_doubles_up_to_a_day() -> None:
    slow = declared("SLOW", retry_backoff=timedelta(hours=1))
    retrier = Retrier(InMemoryJobsStore(), Registry.of([slow]))

    def delay(retry_count: int) -> timedelta:
        letter = LockedLetter(
            job_id=None,
            job_type="SLOW",
            queue="default",
            payload="{}",
            payload_version=1,
            retry_count=retry_count,
        )  # type: ignore[arg-type] -- no id is needed
        return retrier.decide(letter).delay

    assert [delay(n) for n in (0, 1, 2)] == [timedelta(hours=h) for h in (1, 2, 4)]
    assert delay(1_000) == LONGEST_DELAY
    with pytest.raises(InvalidDeclaration, match="retry_backoff"):
        declared("NEVER", retry_backoff=timedelta(0))
