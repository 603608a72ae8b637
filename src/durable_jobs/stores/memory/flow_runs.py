"""Failures of flow runs in memory; see `FailureStore`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from durable_jobs.flow_runs.store import Kept, NewFailure, RunJob
from durable_jobs.states import JobState
from durable_jobs.stores.memory.dead_letters import MemoryLetters
from durable_jobs.stores.memory.rows import Row, time_of
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import clean

_OVER = (JobState.CANCELLED, JobState.SUCCEEDED)


class MemoryFlowRuns(MemoryLetters):
    """Keeps failures, and how far they were looked for."""

    async def register_failed(
        self,
        failures: Sequence[NewFailure],
        *,
        by: str | None = None,
        each: int = 20,
        now: datetime | None = None,
    ) -> list[Kept]:
        """Insert FAILED jobs with their events."""
        tenant, at = required_tenant(), time_of(now)
        kept: list[Kept] = []
        new: list[Row] = []
        for failure in failures:
            if (known := self._keeper(tenant, failure)) is not None:
                kept.append(Kept(known.job_id, False))
                continue
            row = _failed(tenant, failure, at)
            self.memory.jobs[row.job_id] = row
            new.append(row)
            kept.append(Kept(row.job_id, True))
        if new:
            self._tell_all("failed", "WARNING", [(row, {}) for row in new], by, each, at)
        return kept

    async def link_flow_run(self, job_id: UUID, flow_run_id: UUID) -> None:
        """Note the flow run of a running job."""
        row = self.memory.mine(job_id)
        if row.state is JobState.RUNNING:
            row.flow_run_id = flow_run_id

    async def jobs_of_runs(self, *, cancelled_since: datetime, limit: int = 1_000) -> list[RunJob]:
        """Return jobs about whose runs Prefect may know better."""
        rows = [row for row in self.memory.jobs.values() if self._is_disputed(row, cancelled_since)]
        rows.sort(key=lambda row: row.updated_at, reverse=True)
        return [RunJob(row.tenant_id, row.job_id, row.state, row.flow_run_id) for row in rows[:limit]]

    async def positions(self, names: Sequence[str]) -> dict[str, datetime]:
        """Return how far searches have come."""
        return {name: self.memory.positions[name] for name in names if name in self.memory.positions}

    async def keep_positions(self, reached: Mapping[str, datetime]) -> None:
        """Remember how far searches have come."""
        for name, at in reached.items():
            self.memory.positions[name] = max(at, self.memory.positions.get(name, at))

    def _keeper(self, tenant: str, failure: NewFailure) -> Row | None:
        """Return the job that has this failure already."""
        roots = [row for row in self.memory.of(tenant) if row.is_root]
        for row in roots:
            if row.idempotency_key == failure.job.idempotency_key:
                return row
        same = [
            row
            for row in self.memory.of(tenant)
            if row.parent_job_id is None
            and row.flow_run_id == failure.flow_run_id
            and row.job_type == failure.job.job_type
        ]
        going_on = [row for row in same if _keeps(self._last(row), failure.failed_at)]
        return max(going_on, key=lambda row: row.created_at, default=None)

    def _is_disputed(self, row: Row, since: datetime) -> bool:
        if row.job_type != "PREFECT_FLOW_RUN" or row.completed_at is None:
            return False
        if row.state is JobState.CANCELLED:
            return row.completed_at >= since
        waits = row.state is JobState.FAILED and row.retryable and not self._resubmissions(row)
        return waits and row.flow_run_id is not None

    def _last(self, row: Row) -> Row:
        while row.retry_child_id is not None:
            row = self.memory.jobs[row.retry_child_id]
        return row


def _keeps(last: Row, failed_at: datetime) -> bool:
    return last.state not in _OVER or (last.completed_at is not None and last.completed_at >= failed_at)


def _failed(tenant: str, failure: NewFailure, at: datetime) -> Row:
    job = failure.job
    return Row(
        job.job_id,
        tenant,
        job.job_type,
        job.queue,
        job.priority,
        at,
        json.loads(job.payload),
        job.payload_version,
        job.payload_hash,
        job.retryable,
        job.max_retries,
        job.timeout,
        job.job_id,
        at,
        at,
        state=JobState.FAILED,
        failed_reason=clean(failure.reason),
        idempotency_key=job.idempotency_key,
        correlation_id=job.correlation_id,
        submitted_by=job.submitted_by,
        flow_run_id=failure.flow_run_id,
        completed_at=at,
    )
