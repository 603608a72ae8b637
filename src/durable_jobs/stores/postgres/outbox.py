"""The outbox in Postgres; see `EventOutbox`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durable_jobs.outbox.store import Awaited, Backlog, OutboxEvent, Posting
from durable_jobs.stores.postgres.database import Database

_TAKE = (
    "SELECT event_id, tenant_id, event, job_id, severity, payload, occurred_at, posted_at, flow_run_id,"
    " task_run_id, last_tenant FROM take_events(%(limit)s, %(after)s, %(now)s)"
)
_AWAITED = (
    "SELECT event_id, occurred_at, posted_at, waited FROM awaiting_events(%(settled)s, %(limit)s, %(now)s)"
)
_SETTLE = "SELECT settle_events(%(stored)s::uuid[], %(lost)s::uuid[], %(posted)s::timestamptz[], %(now)s)"


class PgOutbox:
    """Takes, awaits and settles events."""

    _db: Database
    _after = ""
    """Tenant behind which the next taking begins."""

    async def take_events(self, limit: int, *, now: datetime | None = None) -> list[OutboxEvent]:
        """Take events that are to be posted."""
        rows: list[Any] = await self._db.fetch(_TAKE, {"limit": limit, "after": self._after, "now": now})
        if rows:
            self._after = rows[0][-1] or ""
        return [OutboxEvent._make(row[:-1]) for row in rows]

    async def awaited_events(
        self, *, settled: timedelta, limit: int, now: datetime | None = None
    ) -> list[Awaited]:
        """Return postings that are to be looked for in Prefect."""
        rows: list[Any] = await self._db.fetch(_AWAITED, {"settled": settled, "limit": limit, "now": now})
        return [Awaited._make(row) for row in rows]

    async def settle_events(
        self, stored: Sequence[UUID], lost: Sequence[Posting], *, now: datetime | None = None
    ) -> None:
        """Write down what Prefect has and what it lost."""
        await self._db.fetch(
            _SETTLE,
            {
                "stored": list(stored),
                "lost": [posting.event_id for posting in lost],
                "posted": [posting.posted_at for posting in lost],
                "now": now,
            },
        )

    async def event_backlog(self) -> Backlog:
        """Return how many events are not published yet."""
        rows: list[Any] = await self._db.fetch("SELECT waiting, posted, oldest_at FROM count_events()", {})
        return Backlog._make(rows[0])
