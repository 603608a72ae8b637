"""The outbox as its publisher sees it; both stores have it.

An event is taken (it is on its way to Prefect since `posted_at`), looked for in Prefect some seconds
later, and only then published, or taken again when Prefect has lost it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID


class OutboxEvent(NamedTuple):
    """An event on its way; `payload` is the text of a JSON object."""

    event_id: UUID
    tenant_id: str | None
    event: str
    job_id: UUID | None
    severity: str
    payload: str
    occurred_at: datetime
    posted_at: datetime
    flow_run_id: UUID | None = None
    task_run_id: UUID | None = None


class Awaited(NamedTuple):
    """A posting that is still to be seen in Prefect, and for how long it has been awaited."""

    event_id: UUID
    occurred_at: datetime
    posted_at: datetime
    waited: timedelta


class Posting(NamedTuple):
    """One posting of an event; a later one has another time."""

    event_id: UUID
    posted_at: datetime


class Backlog(NamedTuple):
    """What Prefect is not known to have: waiting to be posted, posted and not yet seen."""

    waiting: int
    posted: int
    oldest_at: datetime | None


@runtime_checkable
class EventOutbox(Protocol):
    """What the publisher does with the outbox."""

    async def take_events(self, limit: int, *, now: datetime | None = None) -> list[OutboxEvent]:
        """Take events of all tenants and of the system that are to be posted, oldest first, tenants by turns."""
        ...

    async def awaited_events(
        self, *, settled: timedelta, limit: int, now: datetime | None = None
    ) -> list[Awaited]:
        """Return postings older than `settled` that are not published yet, oldest first."""
        ...

    async def settle_events(
        self, stored: Sequence[UUID], lost: Sequence[Posting], *, now: datetime | None = None
    ) -> None:
        """Mark what Prefect has as published; let what it lost be taken again."""
        ...

    async def event_backlog(self) -> Backlog:
        """Return how many events of all tenants are not published yet."""
        ...
