"""Looks at the whole history: what is due, what is not, how old it is. Nothing is changed.

The same look before and after a purge is what proves it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from durable_jobs.errors import RetentionViolated
from durable_jobs.retention.walking import Pace, walk
from durable_jobs.states import JobState
from durable_jobs.stores.retention import DueGroup, Limits, RetentionStore

COUNTED = 50_000
"""Rows of a page that is only counted."""
EXAMPLES = 5
STATISTICS_LAG = 15.0
"""Seconds after which the database's statistics know of rows that have gone."""
BLIND = (
    "retention: no tenant is seen although job_history has rows: the role that enumerates tenants has lost its"
    " policy or its rights; run the migrations again (durable-jobs deploy)"
)


class Ages(NamedTuple):
    """Moments that divide history by age, oldest first; one is the limit of what is due, the last is now."""

    edges: tuple[datetime, ...]
    due_before: datetime

    @property
    def due_buckets(self) -> int:
        """How many buckets hold what ended before the limit."""
        return self.edges.index(self.due_before) + 1


def ages_of(limits: Limits) -> Ages:
    """Return the ages that history is shown by: a day, a week, the retention, twice the retention."""
    kept = limits.now - limits.jobs_before
    shown = sorted({2 * kept, kept, timedelta(days=7), timedelta(days=1), timedelta(0)}, reverse=True)
    edges = tuple(limits.jobs_before if age == kept else limits.now - age for age in shown)
    return Ages(edges, limits.jobs_before)


@dataclass
class TenantLook:
    """What there is of one tenant; without a tenant, of the system."""

    due: int = 0
    bytes: int = 0
    groups: dict[tuple[str, JobState], DueGroup] = field(default_factory=dict)
    kept_with_chain: int = 0
    """Jobs that ended before the limit and stay, because a job of their chain did not."""
    ages: Counter[int] = field(default_factory=Counter)
    """Ended jobs by bucket of `Ages`; those behind the last edge ended since."""
    effects_due: int = 0
    effects_kept: int = 0
    """Effects past their time whose chain is still there."""
    effects_ages: Counter[int] = field(default_factory=Counter)
    """Confirmed effects: 0 made before the limit, 1 before the look, 2 since."""
    events_due: int = 0
    examples: list[UUID] = field(default_factory=list)
    """A few of the jobs that are due."""

    @property
    def has_due(self) -> bool:
        """Whether a purge would take anything."""
        return bool(self.due or self.effects_due or self.events_due)


@dataclass
class Look:
    """What there is, by tenant; the system's own events are under None."""

    limits: Limits
    ages: Ages
    tenants: dict[str | None, TenantLook]

    def total(self, name: str) -> int:
        """Return the sum of a figure over all tenants."""
        return sum(getattr(tenant, name) for tenant in self.tenants.values())

    @property
    def young_effects(self) -> int:
        """How many confirmed effects are not over their time."""
        return sum(tenant.effects_ages[1] + tenant.effects_ages[2] for tenant in self.tenants.values())

    def by_age(self) -> Counter[int]:
        """Return ended jobs by age, over all tenants."""
        return sum((tenant.ages for tenant in self.tenants.values()), Counter())


async def look(store: RetentionStore, limits: Limits, *, tenants: Sequence[str] | None = None) -> Look:
    """Look at the tenants named, or at all and the system.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    looker = _Looker(store, limits)
    names: list[str | None] = list(await store.tenants("purgeable") if tenants is None else tenants)
    if tenants is None:
        names.append(None)
    return Look(limits, looker.ages, {name: await looker.look_at(name) for name in names})


async def require_sight(store: RetentionStore) -> None:
    """Return when tenants are seen, or there is nothing to see: a purge that sees nobody proves nothing.

    Raises:
        RetentionViolated: no tenant is seen although there are jobs.
        StoreUnavailable: the store does not answer.
    """
    gives_up_at = time.monotonic() + STATISTICS_LAG
    while not await store.tenants("purgeable") and await store.has_rows():
        if time.monotonic() > gives_up_at:
            raise RetentionViolated(BLIND, early=False)
        # Statistics lag behind a purge that took everything.
        await asyncio.sleep(0.5)


class _Looker:
    def __init__(self, store: RetentionStore, limits: Limits) -> None:
        self._store, self._limits, self.ages = store, limits, ages_of(limits)
        self._listing, self._counting = Pace(), Pace(COUNTED // 10, COUNTED)

    async def look_at(self, tenant: str | None) -> TenantLook:
        found, store, limits = TenantLook(), self._store, self._limits
        if tenant is not None:
            await self._jobs(tenant, found)
            await self._effects(tenant, found)
        async for page in walk(
            lambda after, limit: store.list_due("events", tenant, limits, after=after, limit=limit),
            self._listing,
        ):
            found.events_due += page.due
        return found

    async def _jobs(self, tenant: str, found: TenantLook) -> None:
        store, limits, edges = self._store, self._limits, self.ages.edges
        async for page in walk(
            lambda after, limit: store.list_due_jobs(tenant, limits, after=after, limit=limit), self._listing
        ):
            found.due += page.due
            found.bytes += page.bytes
            found.kept_with_chain += page.examined - page.due
            found.examples += page.examples[: EXAMPLES - len(found.examples)]
            for group in page.groups:
                known = found.groups.get((group.job_type, group.state))
                found.groups[group.job_type, group.state] = _merged(known, group)
        async for aged in walk(
            lambda after, limit: store.count_history("jobs", tenant, edges, after=after, limit=limit),
            self._counting,
        ):
            found.ages.update(aged.buckets)

    async def _effects(self, tenant: str, found: TenantLook) -> None:
        store, limits = self._store, self._limits
        edges = (limits.effects_before, limits.now)
        async for page in walk(
            lambda after, limit: store.list_due("effects", tenant, limits, after=after, limit=limit),
            self._listing,
        ):
            found.effects_due += page.due
            found.effects_kept += page.examined - page.due
        async for aged in walk(
            lambda after, limit: store.count_history("effects", tenant, edges, after=after, limit=limit),
            self._counting,
        ):
            found.effects_ages.update(aged.buckets)


def _merged(known: DueGroup | None, group: DueGroup) -> DueGroup:
    if known is None:
        return group
    return group.model_copy(
        update={
            "jobs": known.jobs + group.jobs,
            "bytes": known.bytes + group.bytes,
            "oldest": min(known.oldest, group.oldest),
            "youngest": max(known.youngest, group.youngest),
        }
    )
