"""One purge from beginning to end: look, purge the database, purge Redis, look again, prove.

The flow and the command line take the same steps in the same order. A purge of all tenants is recorded, and
its outcome is said; one of some tenants is neither, so that it is not taken for the nightly one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from durable_jobs.errors import PurgeUnderWay
from durable_jobs.redis_health.target import target_of_settings
from durable_jobs.retention.bullmq import PREFIX, RedisPurged, purge_redis
from durable_jobs.retention.figures import purge_figures
from durable_jobs.retention.looking import Look, look, require_sight
from durable_jobs.retention.periods import Periods
from durable_jobs.retention.purging import Purged, purge
from durable_jobs.retention.recording import LOCK, Finish, PurgeRecord, recorded
from durable_jobs.retention.verifying import Verdict, verify
from durable_jobs.retention.walking import Budget
from durable_jobs.settings import Settings
from durable_jobs.states import LIVE
from durable_jobs.stores.postgres.health import PgHealthStates
from durable_jobs.stores.retention import Limits, PurgeTotals, RetentionStore

TIME_BUDGET = timedelta(minutes=30)


class PurgeRun:
    """A purge that is under way, and what it has found so far."""

    def __init__(
        self,
        store: RetentionStore,
        settings: Settings,
        periods: Periods,
        limits: Limits,
        *,
        budget: Budget,
        dry_run: bool = False,
        redis_prefix: str = PREFIX,
        tenants: Sequence[str] | None = None,
    ) -> None:
        """Use an open store; see `purge_run`."""
        self._store, self._settings, self.periods, self.limits = store, settings, periods, limits
        self._budget, self.dry_run, self._prefix, self._tenants = budget, dry_run, redis_prefix, tenants
        self.record: PurgeRecord | None = None
        self.live = 0
        """Jobs that wait or run."""
        self.before: Look | None = None
        self.after: Look | None = None
        self.purged = Purged()
        self.redis = RedisPurged()
        self.verdict: Verdict | None = None
        self.totals = PurgeTotals(0, 0, 0, 0)

    async def look(self) -> Look:
        """Look at what is due, before anything goes.

        Raises:
            RetentionViolated: no tenant is seen although there are jobs.
            StoreUnavailable: the store does not answer.
        """
        if self._tenants is None:
            await require_sight(self._store)
        self.before = await look(self._store, self.limits, tenants=self._tenants)
        self.live = sum(count.jobs for count in await self._store.counts() if count.state in LIVE)
        return self.before

    async def purge_db(self) -> Purged:
        """Purge what is due in the database; in a dry run nothing.

        Raises:
            PurgeRefused, StoreUnavailable.
        """
        if not self.dry_run:
            run_id = self.record.run_id if self.record else None
            self.purged = await purge(self._store, run_id, self.limits, self._budget, tenants=self._tenants)
        return self.purged

    async def purge_redis(self) -> RedisPurged:
        """Purge finished BullMQ jobs, when a Redis is configured; in a dry run only count them.

        They belong to no tenant, so a purge of some tenants leaves them alone. A Redis that is lost here is an
        event at once, as if `redis-health` had found it.
        """
        target = target_of_settings(self._settings)
        if self._tenants is not None or target is None:
            return self.redis
        async with PgHealthStates.from_settings(self._settings) as states:
            self.redis = await purge_redis(
                target,
                self.periods.redis,
                self._budget,
                prefix=self._prefix,
                dry_run=self.dry_run,
                states=states,
            )
        return self.redis

    async def verify(self) -> None:
        """Look again and prove the purge; a dry run has nothing to prove.

        Raises:
            RetentionViolated: something due is left, something else went, or Redis could not be purged.
        """
        if self.dry_run or self.before is None:
            return
        self.after = await look(self._store, self.limits, tenants=self._tenants)
        if self.record is not None:
            self.totals = await self._store.purge_totals(self.record.run_id)
            self.record.payload |= purge_figures(self.before, self.redis)
        self.verdict = await verify(self._store, self.before, self.purged, self.after)
        if self.redis.left:
            self.verdict.left.append(
                f"Redis at {self.redis.endpoint}: {self.redis.left} finished jobs are due and still there"
            )
        if self.redis.fault:
            self.verdict.other.append(self.redis.fault)
        self.verdict.require_good()

    def figures(self) -> dict[str, Any]:
        """Return what went, or in a dry run would go, as programs read it."""
        due = self.before
        found = purge_figures(due, self.redis) if due is not None else {}
        if self.dry_run and due is not None:
            return found | {
                "dryRun": True,
                "jobs": due.total("due"),
                "events": due.total("events_due"),
                "effects": due.total("effects_due"),
                "bytes": due.total("bytes"),
            }
        took = self.purged
        told = PurgeTotals(took.total, took.events, took.effects, took.bytes)
        return found | {"dryRun": False, **(self.totals if self.record else told)._asdict()}


@asynccontextmanager
async def purge_run(
    store: RetentionStore,
    settings: Settings,
    periods: Periods,
    *,
    time_budget: timedelta = TIME_BUDGET,
    dry_run: bool = False,
    redis_prefix: str = PREFIX,
    tenants: Sequence[str] | None = None,
    finish: Finish | None = None,
) -> AsyncIterator[PurgeRun]:
    """Make a purge for the block, which takes its steps; one at a time.

    Raises:
        RetentionTooShort: a period is under the floor.
        PurgeUnderWay: another purge is at work.
        StoreUnavailable: the store does not answer.
    """
    limits = await periods.limits(store, settings.min_retention)
    run = PurgeRun(
        store,
        settings,
        periods,
        limits,
        budget=Budget(time_budget),
        dry_run=dry_run,
        redis_prefix=redis_prefix,
        tenants=tenants,
    )
    if dry_run:
        yield run
    elif tenants is not None:
        async with store.only_one(LOCK) as alone:
            if not alone:
                raise PurgeUnderWay("another purge is at work: wait until it has ended, then start again")
            yield run
    else:
        async with recorded(store, limits, finish) as record:
            run.record = record
            yield run
