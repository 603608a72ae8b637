"""What retention needs of a store: pages of history to look at and to purge, and a record of each purge.

A page begins behind the last row of the page before, so nothing is looked at twice. What is listed and
what is purged are chosen by the same rule and the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from durable_jobs.errors import BadInput
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import QueueCount

Purgeable = Literal["jobs", "effects", "events"]


class Limits(NamedTuple):
    """Moments of the store's clock: what ended before them is due."""

    now: datetime
    jobs_before: datetime
    effects_before: datetime


class Position(NamedTuple):
    """The last row of a page."""

    at: datetime
    id: UUID


class _Walked(BaseModel):
    model_config = ConfigDict(frozen=True)

    examined: int
    """Rows of the page; fewer than asked for: it is the last one."""
    at: datetime | None
    id: UUID | None

    @property
    def end(self) -> Position | None:
        """Where the next page begins."""
        return None if self.at is None or self.id is None else Position(self.at, self.id)


class DueGroup(BaseModel):
    """Jobs of one type and state that are due."""

    model_config = ConfigDict(frozen=True)

    job_type: str
    state: JobState
    jobs: int
    bytes: int
    oldest: datetime
    youngest: datetime


class DueJobs(_Walked):
    """A page of old history: what is due, by type and state."""

    due: int
    bytes: int
    examples: tuple[UUID, ...]
    groups: tuple[DueGroup, ...]


class DueRows(_Walked):
    """A page of old effects or published events."""

    due: int


class GoneGroup(BaseModel):
    """Jobs of one type and state that went."""

    model_config = ConfigDict(frozen=True)

    job_type: str
    state: JobState
    jobs: int
    bytes: int


class GonePage(_Walked):
    """A page that was purged; committed when it is returned."""

    gone: int
    bytes: int = 0
    events: int = 0
    """Published events that went with their jobs."""
    skipped: int = 0
    """Chains that were due and are held, or have changed meanwhile."""
    youngest: datetime | None = None
    """When the youngest job that went had ended."""
    groups: tuple[GoneGroup, ...] = ()


class AgedPage(_Walked):
    """A page of history by age: how many rows between which edges."""

    buckets: dict[int, int]


class PurgeTotals(NamedTuple):
    """What a run has committed."""

    jobs: int
    events: int
    effects: int
    bytes: int


class PurgeState(NamedTuple):
    """How the purges of the past went; for `check`."""

    last_success_at: datetime | None
    last_run_at: datetime | None
    failing_runs: int
    """Runs since the last success that failed or were killed, one that is under way left out."""
    last_fault: str | None


def require_aware(name: str, moment: datetime) -> datetime:
    """Return the moment.

    Raises:
        BadInput: it has no time zone, so it may mean any of 38 hours.
    """
    if moment.utcoffset() is None:
        raise BadInput(f"{name} {moment.isoformat()!r} has no time zone: use an aware datetime, such as UTC")
    return moment


@runtime_checkable
class RetentionStore(Protocol):
    """What a purge needs."""

    async def retention_limits(
        self, jobs: timedelta, effects: timedelta, *, now: datetime | None = None
    ) -> Limits:
        """Return what is due at the store's time, in exact hours whatever any time zone does."""
        ...

    async def tenants(self, kind: str, *, queue: str | None = None) -> list[str]:
        """Return tenants; kind `purgeable`: with jobs, effects or published events."""
        ...

    async def has_rows(self) -> bool:
        """Tell whether there is any job, by the store's own statistics: a check of the enumeration."""
        ...

    async def counts(self) -> list[QueueCount]:
        """Return how many jobs are live or dead letters, over all tenants."""
        ...

    def only_one(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Hold a lock for the block; False when another process holds it."""
        ...

    async def list_due_jobs(
        self, tenant_id: str, limits: Limits, *, after: Position | None = None, limit: int
    ) -> DueJobs:
        """Look at a page of a tenant's jobs that ended before the limit."""
        ...

    async def list_due(
        self,
        what: Purgeable,
        tenant_id: str | None,
        limits: Limits,
        *,
        after: Position | None = None,
        limit: int,
    ) -> DueRows:
        """Look at a page of effects or published events; events without a tenant are the system's."""
        ...

    async def purge(
        self,
        what: Purgeable,
        run_id: UUID | None,
        tenant_id: str | None,
        limits: Limits,
        *,
        after: Position | None = None,
        limit: int,
    ) -> GonePage:
        """Purge what is due on a page, in one transaction, and count it in the run.

        Raises:
            BadInput: a limit is naive.
            PurgeRefused: something not due would have gone; nothing went.
            StoreUnavailable: it went or it did not; asking again is safe.
        """
        ...

    async def count_history(
        self,
        what: Purgeable,
        tenant_id: str,
        edges: Sequence[datetime],
        *,
        after: Position | None = None,
        limit: int,
    ) -> AgedPage:
        """Count a page of ended jobs, or of confirmed effects, by age."""
        ...

    async def cancelled_since(self, tenant_id: str, since: datetime) -> int:
        """Return how many jobs were cancelled since: a failed job that is cancelled ends anew."""
        ...

    async def begin_purge(self, limits: Limits) -> UUID:
        """Record that a purge begins, and return its id."""
        ...

    async def purge_totals(self, run_id: UUID) -> PurgeTotals:
        """Return what a run has committed."""
        ...

    async def finish_purge(
        self, run_id: UUID, *, fault: str | None, early: bool, payload: Mapping[str, Any]
    ) -> str | None:
        """Record how a purge ended, and its event in the same transaction; return the event's name.

        Args:
            run_id: what `begin_purge` returned.
            fault: what was wrong, or None.
            early: whether something went too early, which is said at once. Other faults are said when
                the run before did not succeed either.
            payload: figures for the event.
        """
        ...

    async def purge_state(self) -> PurgeState:
        """Return how the purges of the past went."""
        ...
