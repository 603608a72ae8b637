"""What the reconciler needs of Postgres; see `ReconcilerStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from durable_jobs.stores.postgres.operator import PgOperator
from durable_jobs.stores.protocols import LoneJob, RemovedExecutor

# The transaction that holds a lock waits without a word for as long as the work takes. It has no snapshot
# and changes nothing, so it holds up nobody.
_STAY = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""


class PgReconciler(PgOperator):
    """Dead executors, and jobs that run alone."""

    @asynccontextmanager
    async def only_one(self, name: str) -> AsyncIterator[bool]:
        """Hold an advisory lock; in a transaction, so that it also holds behind a pooler."""
        async with self._db.transaction() as connection:
            await connection.execute(_STAY)
            cursor = await connection.execute(
                "SELECT pg_try_advisory_xact_lock(hashtext(%s))", [f"durable_jobs.{name}"]
            )
            row: Any = await cursor.fetchone()
            yield bool(row and row[0])

    async def has_rows(self) -> bool:
        """Tell whether the table has live rows, as the statistics say."""
        rows = await self._db.fetch("SELECT pg_stat_get_live_tuples('job_history'::regclass) > 0", {})
        return bool(rows[0][0])

    async def remove_executors(
        self, silent: Sequence[UUID], *, stale_after: timedelta
    ) -> list[RemovedExecutor]:
        """Forget executors that are still silent and hold no job any more."""
        rows = await self._db.fetch(
            "SELECT executor_id, flow_run_id FROM remove_executors(%(silent)s::uuid[], %(stale)s)",
            {"silent": list(silent), "stale": stale_after},
        )
        return [RemovedExecutor._make(row) for row in rows]

    async def waiting_alone(
        self, isolated: Sequence[str], *, stale_after: timedelta, limit: int
    ) -> list[LoneJob]:
        """Return jobs that need a flow run of their own."""
        rows = await self._db.fetch(
            "SELECT tenant_id, job_id, queue, dispatch_count, flow_run_id"
            " FROM waiting_alone(%(queues)s::text[], %(stale)s, %(limit)s, NULL)",
            {"queues": list(isolated), "stale": stale_after, "limit": limit},
        )
        return [LoneJob._make(row) for row in rows]

    async def dispatched(self, isolated: Sequence[str]) -> dict[str, int]:
        """Return how many jobs of each isolated queue are on their way."""
        rows = await self._db.fetch(
            "SELECT queue, jobs FROM dispatched_jobs(%(queues)s::text[])", {"queues": list(isolated)}
        )
        return dict(rows)

    async def mark_dispatched(self, job: LoneJob, flow_run_id: UUID) -> bool:
        """Note a job's flow run."""
        rows = await self._db.fetch(
            "SELECT mark_dispatched(%(tenant_id)s, %(job_id)s, %(dispatch_count)s, %(run)s, NULL)",
            job._asdict() | {"run": flow_run_id},
        )
        return bool(rows[0][0])

    async def unstoppable_runs(self, *, margin: timedelta) -> list[UUID]:
        """Return flow runs of isolated jobs that should have stopped."""
        rows = await self._db.fetch("SELECT unstoppable_runs(%(margin)s)", {"margin": margin})
        return [row[0] for row in rows]
