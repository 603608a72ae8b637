"""Purges what is due, page by page: each page is committed, so whatever ends the run, it has gone on.

Jobs first, then effects, then the events that no job holds: an effect may go only when its chain has gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from durable_jobs.retention.walking import Budget, Pace, walk
from durable_jobs.states import JobState
from durable_jobs.stores.retention import GonePage, Limits, Purgeable, RetentionStore

ROUNDS = 3
"""How often a tenant is gone through when something was held by somebody else."""
PAUSE = 1.0
"""Seconds between the rounds."""


@dataclass
class Purged:
    """What a run took, as far as its answers arrived; `PurgeTotals` has what was committed."""

    jobs: Counter[tuple[str, str, JobState]] = field(default_factory=Counter)
    """By tenant, type and state."""
    bytes: int = 0
    events: int = 0
    effects: int = 0
    youngest: datetime | None = None
    """When the youngest job that went had ended."""
    out_of_time: bool = False
    """Whether the time budget was over first; the next run goes on."""

    @property
    def total(self) -> int:
        """Return how many jobs went."""
        return self.jobs.total()


async def purge(
    store: RetentionStore,
    run_id: UUID | None,
    limits: Limits,
    budget: Budget,
    *,
    tenants: Sequence[str] | None = None,
) -> Purged:
    """Purge the tenants named, or all and the events of the system.

    Raises:
        PurgeRefused: something that is not due would have gone; nothing went.
        StoreUnavailable: the store stayed away; what was committed before stays so.
    """
    purger = _Purger(store, run_id, limits, budget)
    names: list[str | None] = list(await store.tenants("purgeable") if tenants is None else tenants)
    # Another tenant first each time, so that a budget that is too small is not always at the same one's cost.
    first = run_id.int % len(names) if run_id is not None and names else 0
    names = names[first:] + names[:first]
    for name in names:
        await purger.purge_all("jobs", name)
    for name in names:
        await purger.purge_all("effects", name)
    for name in names if tenants is not None else [*names, None]:
        await purger.purge_all("events", name)
    purger.purged.out_of_time = budget.is_over
    return purger.purged


class _Purger:
    def __init__(self, store: RetentionStore, run_id: UUID | None, limits: Limits, budget: Budget) -> None:
        self._store, self._run, self._limits, self._budget = store, run_id, limits, budget
        self._pace = Pace()
        self.purged = Purged()

    async def purge_all(self, what: Purgeable, tenant: str | None) -> None:
        """Go through a tenant until nothing was held, a few times at most."""
        for _ in range(ROUNDS):
            if not await self._round(what, tenant) or self._budget.is_over:
                return
            await asyncio.sleep(PAUSE)

    async def _round(self, what: Purgeable, tenant: str | None) -> int:
        store, limits, skipped = self._store, self._limits, 0
        async for page in walk(
            lambda after, limit: store.purge(what, self._run, tenant, limits, after=after, limit=limit),
            self._pace,
            self._budget,
        ):
            self._note(what, tenant, page)
            skipped += page.skipped
        return skipped

    def _note(self, what: Purgeable, tenant: str | None, page: GonePage) -> None:
        if what == "effects":
            self.purged.effects += page.gone
        elif what == "events":
            self.purged.events += page.gone
        else:
            self.purged.events += page.events
            self.purged.bytes += page.bytes
            for group in page.groups:
                self.purged.jobs[str(tenant), group.job_type, group.state] += group.jobs
            ended = [moment for moment in (self.purged.youngest, page.youngest) if moment is not None]
            self.purged.youngest = max(ended, default=None)
