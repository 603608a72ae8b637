"""Retention in Postgres; see `RetentionStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from durable_jobs.errors import PurgeRefused
from durable_jobs.sql import load
from durable_jobs.stores.postgres.database import Database
from durable_jobs.stores.retention import (
    AgedPage,
    DueJobs,
    DueRows,
    GonePage,
    Limits,
    Position,
    Purgeable,
    PurgeState,
    PurgeTotals,
    require_aware,
)
from durable_jobs.texts import clean, storable_json
from durable_jobs.urls import first_line

P = TypeVar("P", AgedPage, DueJobs, DueRows, GonePage)

NOT_DUE = "DJ004"
"""A batch would have purged something that is not due."""

# Seconds, not days: a day of an interval is a day of the session's time zone and may have 23 or 25 hours.
_LIMITS = (
    "SELECT n.at, n.at - make_interval(secs => %(jobs)s), n.at - make_interval(secs => %(effects)s)"
    " FROM (SELECT coalesce(%(now)s::timestamptz, now())) AS n (at)"
)
_PAGE = "%(at)s, %(id)s, %(limit)s)"
_TIMES: Mapping[Purgeable, str] = {
    "jobs": "%(tenant)s, %(jobs_before)s",
    "effects": "%(tenant)s, %(effects_before)s, %(jobs_before)s",
    "events": "%(tenant)s, %(jobs_before)s, %(now)s",
}


class PgRetention:
    """Looking at history, purging it, and remembering how that went."""

    _db: Database

    async def retention_limits(
        self, jobs: timedelta, effects: timedelta, *, now: datetime | None = None
    ) -> Limits:
        """Return what is due at the database's time."""
        params = {
            "jobs": jobs.total_seconds(),
            "effects": effects.total_seconds(),
            "now": None if now is None else require_aware("now", now),
        }
        [row] = await self._db.fetch(_LIMITS, params)
        return Limits._make(row)

    async def list_due_jobs(
        self, tenant_id: str, limits: Limits, *, after: Position | None = None, limit: int
    ) -> DueJobs:
        """Look at a page of a tenant's old history."""
        statement = f"SELECT list_due_jobs({_TIMES['jobs']}, {_PAGE}"
        return await self._page(DueJobs, statement, after, limit, tenant=tenant_id, **_aware(limits))

    async def list_due(
        self,
        what: Purgeable,
        tenant_id: str | None,
        limits: Limits,
        *,
        after: Position | None = None,
        limit: int,
    ) -> DueRows:
        """Look at a page of effects or published events."""
        statement = f"SELECT list_due(%(what)s, {_TIMES[what]}, {_PAGE}"
        params = {"what": what, "tenant": tenant_id, **_aware(limits)}
        return await self._page(DueRows, statement, after, limit, **params)

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
        """Purge what is due on a page, in one transaction."""
        statement = f"SELECT purge_{what}(%(run)s, {_TIMES[what]}, {_PAGE}"
        params = {"run": run_id, "tenant": tenant_id, **_aware(limits)}
        try:
            return await self._page(GonePage, statement, after, limit, **params)
        except psycopg.Error as error:
            if error.sqlstate == NOT_DUE:
                raise PurgeRefused(f"retention: {first_line(error)}") from error
            raise

    async def count_history(
        self,
        what: Purgeable,
        tenant_id: str,
        edges: Sequence[datetime],
        *,
        after: Position | None = None,
        limit: int,
    ) -> AgedPage:
        """Count a page of history by age."""
        statement = "SELECT count_history(%(what)s, %(tenant)s, %(edges)s, %(at)s, %(id)s, %(limit)s)"
        return await self._page(
            AgedPage, statement, after, limit, what=what, tenant=tenant_id, edges=list(edges)
        )

    async def cancelled_since(self, tenant_id: str, since: datetime) -> int:
        """Return how many jobs were cancelled since."""

        async def count(connection: psycopg.AsyncConnection[Any]) -> int:
            await connection.execute("SELECT set_tenants(ARRAY[%s])", [tenant_id])
            cursor = await connection.execute(
                load("cancelled_since"), {"tenant": tenant_id, "since": require_aware("since", since)}
            )
            row: Any = await cursor.fetchone()
            return int(row[0])

        return await self._db.in_transaction(count)

    async def begin_purge(self, limits: Limits) -> UUID:
        """Record that a purge begins; the record keeps a year."""
        run_id = uuid7()
        await self._db.fetch(
            load("begin_purge"),
            {"run": run_id, "jobs_before": limits.jobs_before, "effects_before": limits.effects_before},
        )
        return run_id

    async def purge_totals(self, run_id: UUID) -> PurgeTotals:
        """Return what a run has committed."""
        [row] = await self._db.fetch(
            "SELECT jobs, events, effects, bytes FROM purge_runs WHERE run_id = %(run)s", {"run": run_id}
        )
        return PurgeTotals._make(row)

    async def finish_purge(
        self, run_id: UUID, *, fault: str | None, early: bool, payload: Mapping[str, Any]
    ) -> str | None:
        """Record how a purge ended, and its event."""
        [row] = await self._db.fetch(
            "SELECT finish_purge(%(run)s, %(fault)s, %(early)s, %(payload)s::jsonb, NULL)",
            {
                "run": run_id,
                "fault": None if fault is None else clean(fault),
                "early": early,
                "payload": storable_json(dict(payload)),
            },
        )
        event: str | None = row[0]
        return event

    async def purge_state(self) -> PurgeState:
        """Return how the purges of the past went."""
        [row] = await self._db.fetch(load("purge_state"), {})
        return PurgeState._make(row)

    async def _page(
        self, model: type[P], statement: str, after: Position | None, limit: int, **more: Any
    ) -> P:
        place = {"at": after.at if after else None, "id": after.id if after else None, "limit": limit}
        [row] = await self._db.fetch(statement, place | more)
        return model.model_validate(row[0])


def _aware(limits: Limits) -> dict[str, datetime]:
    return {name: require_aware(name, moment) for name, moment in limits._asdict().items()}
