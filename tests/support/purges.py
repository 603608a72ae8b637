"""One whole purge as the flow does it: look, purge, look again, verify."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from durable_jobs.retention import Budget, Look, Periods, Purged, Verdict, look, purge, recorded, verify
from durable_jobs.stores.retention import RetentionStore

FLOOR = timedelta(days=1)


class Done(NamedTuple):
    """What a purge saw, took and proved."""

    before: Look
    purged: Purged
    after: Look
    verdict: Verdict


async def purge_once(
    store: RetentionStore, periods: Periods | None = None, *, time_budget: timedelta | None = None
) -> Done:
    """Purge all tenants; raises what is wrong with it."""
    limits = await (periods or Periods()).limits(store, FLOOR)
    async with recorded(store, limits) as record:
        before = await look(store, limits)
        purged = await purge(store, record.run_id, limits, Budget(time_budget))
        after = await look(store, limits)
        verdict = await verify(store, before, purged, after)
        verdict.require_good()
    return Done(before, purged, after, verdict)
