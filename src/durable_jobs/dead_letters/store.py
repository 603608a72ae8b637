"""What dead letters need of a store; both stores have it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from durable_jobs.jobs import Job
from durable_jobs.states import JobState


class LetterFilter(NamedTuple):
    """Which jobs are meant; a missing part does not filter."""

    job_ids: tuple[UUID, ...] | None = None
    job_type: str | None = None
    since: datetime | None = None
    """Failed at this time or later."""
    reason_like: str | None = None
    """Part of the reason, in any case; `%` stands for any text and `_` for any character."""

    @property
    def is_empty(self) -> bool:
        """Whether it means every job."""
        return self == LetterFilter()

    def as_json(self) -> dict[str, Any]:
        """Return what the database's functions take."""
        parts = {
            "job_ids": None if self.job_ids is None else [str(job_id) for job_id in self.job_ids],
            "job_type": self.job_type,
            "since": None if self.since is None else self.since.isoformat(),
            "reason_like": None if self.reason_like is None else f"%{self.reason_like}%",
        }
        return {name: part for name, part in parts.items() if part is not None}


EVERY = LetterFilter()


class LockedLetter(NamedTuple):
    """A dead letter about which is decided; `payload` is JSON text."""

    job_id: UUID
    job_type: str
    queue: str
    payload: str
    payload_version: int
    retry_count: int


class Verdict(NamedTuple):
    """What becomes of a dead letter: a retry after a delay, or, with a reason, no retry ever."""

    refuse: str | None = None
    delay: timedelta = timedelta(0)


class Retried(NamedTuple):
    """What became of a dead letter: `retried`, `refused`, or `full` (it waits for room in its queue)."""

    letter: LockedLetter
    outcome: str
    child_id: UUID | None
    reason: str | None


class LetterCount(NamedTuple):
    """The dead letters of one type, and how its executions ended lately."""

    job_type: str
    letters: int
    at_limit: int
    oldest_at: datetime | None
    failed: int
    ended: int


class ChainEvent(NamedTuple):
    """Something that was told of a job of a chain."""

    job_id: UUID
    event: str
    severity: str
    occurred_at: datetime
    by: str | None


@runtime_checkable
class LetterStore(Protocol):
    """What the dead-letter pass and people do with what failed. One call is one tenant's transaction."""

    async def find_failed(
        self, tenant_id: str, wanted: LetterFilter = EVERY, *, limit: int = 50
    ) -> list[Job]:
        """Return dead letters, oldest first, without payloads: failed, retryable, not resubmitted."""
        ...

    async def find_ended(
        self, tenant_id: str, states: Sequence[JobState], wanted: LetterFilter = EVERY, *, limit: int = 50
    ) -> list[Job]:
        """Return jobs in these states that nobody has resubmitted, oldest first, without payloads."""
        ...

    async def count_letters(
        self, tenant_id: str, *, since: timedelta, now: datetime | None = None
    ) -> list[LetterCount]:
        """Return the dead letters by type, and how executions ended in the time before now."""
        ...

    async def retry_failed(
        self,
        tenant_id: str,
        decide: Callable[[LockedLetter], Verdict],
        bounds: Mapping[str, int | None],
        *,
        wanted: LetterFilter = EVERY,
        full: Collection[str] = (),
        skip: Collection[UUID] = (),
        limit: int = 50,
        by: str | None = None,
        each: int = 20,
        now: datetime | None = None,
    ) -> list[Retried]:
        """Lock dead letters that have retries left, decide about each, and act in the same transaction.

        Args:
            tenant_id: whose.
            decide: called once for each.
            bounds: `max_pending` of each queue.
            wanted: only these.
            full: queues whose jobs are left alone.
            skip: jobs that are left alone.
            limit: most jobs.
            by: who asked, for the events.
            each: up to so many jobs have an event each; more share one.
            now: the time, for tests.
        """
        ...

    async def abandon_failed(
        self,
        tenant_id: str,
        *,
        wanted: LetterFilter = EVERY,
        limit: int = 10_000,
        by: str | None = None,
        each: int = 20,
        now: datetime | None = None,
    ) -> dict[str, int]:
        """Give up dead letters that have had all their retries; return how many of each type."""
        ...

    async def chain(self, job_id: UUID) -> list[Job]:
        """Return the chain of a job of the scope's tenant, with what was resubmitted from or as it.

        Raises:
            JobNotFound: there is none in this tenant.
        """
        ...

    async def chain_events(self, job_ids: Sequence[UUID]) -> list[ChainEvent]:
        """Return what was told of these jobs of the scope's tenant, oldest first."""
        ...
