"""Failures of flow runs in Postgres; see `FailureStore`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from durable_jobs.flow_runs.store import Kept, NewFailure, RunJob
from durable_jobs.sql import load
from durable_jobs.states import JobState
from durable_jobs.stores.postgres.database import Database
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import clean

_REGISTER_FAILED = (
    "SELECT n, kept_by, created FROM register_failed("
    "%(tenant)s, %(jobs)s::jsonb, %(by)s, %(each)s, %(now)s::timestamptz) ORDER BY n"
)


class PgFlowRuns:
    """Keeps failures, and how far they were looked for."""

    _db: Database

    async def register_failed(
        self,
        failures: Sequence[NewFailure],
        *,
        by: str | None = None,
        each: int = 20,
        now: datetime | None = None,
    ) -> list[Kept]:
        """Insert FAILED jobs with their events."""
        jobs = "[" + ",".join(_request(n, failure) for n, failure in enumerate(failures)) + "]"
        params = {"tenant": required_tenant(), "jobs": jobs, "by": by, "each": each, "now": now}
        return [
            Kept(job_id, created) for _, job_id, created in await self._db.fetch(_REGISTER_FAILED, params)
        ]

    async def link_flow_run(self, job_id: UUID, flow_run_id: UUID) -> None:
        """Note the flow run of a running job."""
        await self._db.fetch(
            "SELECT link_flow_run(%(tenant)s, %(job_id)s, %(run)s)",
            {"tenant": required_tenant(), "job_id": job_id, "run": flow_run_id},
        )

    async def jobs_of_runs(self, *, cancelled_since: datetime, limit: int = 1_000) -> list[RunJob]:
        """Return jobs about whose runs Prefect may know better."""
        rows = await self._db.fetch(
            "SELECT tenant_id, job_id, state, flow_run_id FROM jobs_of_runs(%(since)s, %(limit)s)",
            {"since": cancelled_since, "limit": limit},
        )
        return [RunJob(tenant, job_id, JobState(state), run) for tenant, job_id, state, run in rows]

    async def positions(self, names: Sequence[str]) -> dict[str, datetime]:
        """Return how far searches have come."""
        rows = await self._db.fetch(
            "SELECT name, reached FROM search_positions WHERE name = ANY (%(names)s)", {"names": list(names)}
        )
        return dict(rows)

    async def keep_positions(self, reached: Mapping[str, datetime]) -> None:
        """Remember how far searches have come."""
        # In one order: two that keep the same ones wait for each other, not in a circle.
        rows = sorted(reached.items())

        async def work(connection: AsyncConnection[Any]) -> None:
            await connection.cursor().executemany(load("keep_position"), rows)

        if rows:
            await self._db.in_transaction(work)


def _request(n: int, failure: NewFailure) -> str:
    job = failure.job
    columns = {
        "n": n,
        "job_id": str(job.job_id),
        "job_type": job.job_type,
        "queue": job.queue,
        "priority": job.priority,
        "payload_version": job.payload_version,
        "payload_hash": job.payload_hash,
        "reason": clean(failure.reason),
        "idempotency_key": job.idempotency_key,
        "correlation_id": job.correlation_id,
        "submitted_by": job.submitted_by,
        "retryable": job.retryable,
        "max_retries": job.max_retries,
        "timeout": f"{job.timeout.total_seconds()} s",
        "flow_run_id": str(failure.flow_run_id),
        "failed_at": failure.failed_at.isoformat(),
    }
    # The payload is JSON already.
    return f'{json.dumps(columns)[:-1]}, "payload": {job.payload}}}'
