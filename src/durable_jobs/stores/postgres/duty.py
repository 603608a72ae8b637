"""Executors, their leases, and what is paused: the tables that belong to no tenant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from durable_jobs.stores.postgres.database import Database
from durable_jobs.stores.protocols import Executor, ExecutorView, Paused, QueueUse

_EXECUTORS = """
SELECT e.executor_id, e.host, e.pid, e.queues, e.flow_run_id, e.in_crew, e.job_types, e.started_at, e.last_seen_at,
       now() - e.last_seen_at AS silence, e.idle, e.draining,
       coalesce(jsonb_object_agg(l.queue, l.held) FILTER (WHERE l.held > 0), '{}') AS held
FROM job_executors e LEFT JOIN queue_leases l USING (executor_id)
GROUP BY e.executor_id ORDER BY e.started_at DESC, e.executor_id DESC
"""
BEAT = "UPDATE job_executors SET last_seen_at = now() WHERE executor_id = %(executor)s RETURNING draining"


class PgDuty:
    """Who is on duty."""

    def __init__(self, database: Database) -> None:
        """Use a database that the caller opens."""
        self._db = database

    async def now(self) -> datetime:
        """Return the database's time."""
        rows: list[tuple[datetime]] = await self._db.fetch("SELECT now()", {})
        return rows[0][0]

    async def enter_executor(self, executor: Executor) -> None:
        """Make an executor known."""
        await self._db.fetch(
            "INSERT INTO job_executors (executor_id, host, pid, queues, flow_run_id, in_crew, job_types)"
            " VALUES (%(executor_id)s, %(host)s, %(pid)s, %(queues)s, %(flow_run_id)s, %(in_crew)s, %(job_types)s)"
            " ON CONFLICT (executor_id) DO UPDATE SET last_seen_at = now()",
            executor._asdict()
            | {
                "queues": list(executor.queues),
                "job_types": None if executor.job_types is None else list(executor.job_types),
            },
        )

    async def beat(self, executor_id: UUID) -> bool:
        """Tell that an executor lives."""
        return bool(await self._db.fetch(BEAT, {"executor": executor_id}))

    async def leave_executor(self, executor_id: UUID) -> None:
        """Forget an executor and free its leases."""
        await self._db.fetch("DELETE FROM job_executors WHERE executor_id = %(id)s", {"id": executor_id})

    async def set_idle(self, executor_id: UUID, idle: bool) -> None:
        """Say whether a registration must wake this executor."""
        await self._db.fetch(
            "UPDATE job_executors SET idle = %(idle)s WHERE executor_id = %(id)s",
            {"id": executor_id, "idle": idle},
        )

    async def set_draining(self, executor_id: UUID) -> None:
        """Say that this executor claims no more."""
        await self._db.fetch(
            "UPDATE job_executors SET draining = true, idle = false WHERE executor_id = %(id)s",
            {"id": executor_id},
        )

    async def serve_less(
        self, executor_id: UUID, *, queues: Sequence[str], job_types: Sequence[str], left_out: Sequence[str]
    ) -> None:
        """Say what an executor still serves, and which types it claims no more."""
        await self._db.fetch(
            "UPDATE job_executors SET queues = %(queues)s::text[], job_types = %(types)s::text[],"
            " left_out = %(left_out)s::text[] WHERE executor_id = %(id)s",
            {
                "id": executor_id,
                "queues": list(queues),
                "types": list(job_types),
                "left_out": list(left_out),
            },
        )

    async def executors(self) -> list[ExecutorView]:
        """Return all executors, newest first."""
        rows: list[dict[str, Any]] = await self._db.fetch(_EXECUTORS, {}, row_factory=dict_row)
        return [
            ExecutorView(
                Executor(
                    row["executor_id"],
                    row["host"],
                    row["pid"],
                    tuple(row["queues"]),
                    row["flow_run_id"],
                    row["in_crew"],
                    None if row["job_types"] is None else tuple(row["job_types"]),
                ),
                row["started_at"],
                row["last_seen_at"],
                row["silence"],
                row["idle"],
                row["draining"],
                row["held"],
            )
            for row in rows
        ]

    async def lease_queues(
        self, executor_id: UUID, uses: Sequence[QueueUse], *, stale_after: timedelta
    ) -> dict[str, int]:
        """Return how much of each queue's concurrency this executor holds now."""
        rows: list[Any] = await self._db.fetch(
            "SELECT queue, held FROM lease_queues(%(executor)s, %(uses)s::jsonb, %(stale)s)",
            {
                "executor": executor_id,
                "uses": json.dumps([use._asdict() for use in uses]),
                "stale": stale_after,
            },
        )
        return dict(rows)

    async def silent_executors(self, *, stale_after: timedelta) -> list[UUID]:
        """Return executors that have not beaten for so long."""
        rows: list[Any] = await self._db.fetch(
            "SELECT executor_id FROM job_executors WHERE last_seen_at < now() - %(stale)s::interval",
            {"stale": stale_after},
        )
        return [row[0] for row in rows]

    async def tenants(self, kind: str, *, queue: str | None = None) -> list[str]:
        """Return tenants with jobs of a kind."""
        rows: list[Any] = await self._db.fetch(
            "SELECT list_tenants(%(kind)s, %(queue)s)", {"kind": kind, "queue": queue}
        )
        return [row[0] for row in rows]

    async def pause(self, kind: str, name: str, *, by: str | None = None) -> None:
        """Hold a queue or a type back."""
        await self._set_paused(kind, name, by, True)

    async def resume(self, kind: str, name: str, *, by: str | None = None) -> bool:
        """Let it go on."""
        return await self._set_paused(kind, name, by, False)

    async def _set_paused(self, kind: str, name: str, by: str | None, paused: bool) -> bool:
        rows: list[Any] = await self._db.fetch(
            "SELECT set_paused(%(kind)s, %(name)s, %(by)s, %(paused)s)",
            {"kind": kind, "name": name, "by": by, "paused": paused},
        )
        return bool(rows[0][0])

    async def paused(self) -> list[Paused]:
        """Return what is paused."""
        rows: list[Any] = await self._db.fetch(
            "SELECT kind, name, since, by FROM paused ORDER BY kind, name", {}
        )
        return [Paused._make(row) for row in rows]
