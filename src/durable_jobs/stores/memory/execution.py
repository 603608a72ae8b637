"""Claims and outcomes in memory: the order, the turns and the fences of the database functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from durable_jobs.jobs import ClaimedJob, Outcome
from durable_jobs.states import JobState
from durable_jobs.stores.memory.duty import MemoryDuty
from durable_jobs.stores.memory.rows import Row, time_of
from durable_jobs.stores.protocols import Claim, Fenced, Front, HeldJob, Note, Unwritten
from durable_jobs.texts import clean, storable_json


class MemoryExecution(MemoryDuty):
    """What an executor does with jobs."""

    async def claim(
        self,
        executor_id: UUID,
        queue: str,
        limit: int,
        *,
        after_tenant: str = "",
        fronts: Sequence[Front] | None = None,
        now: datetime | None = None,
    ) -> Claim:
        """Take due jobs of a queue."""
        if ("queue", queue) in self.memory.paused or executor_id not in self.memory.executors:
            return Claim([], [])
        at = time_of(now)
        left_out = self.memory.executors[executor_id].left_out
        waiting = [row for row in self._waiting(queue) if row.job_type not in left_out]
        if fronts is None:
            order = _by_turns({row.tenant_id for row in waiting}, after_tenant)
        else:
            order = list(dict.fromkeys(front.tenant_id for front in fronts))
        taken: list[Row] = []
        for turn, tenant in enumerate(order):
            asked = -(-(limit - len(taken)) // (len(order) - turn))
            due = [row for row in waiting if row.tenant_id == tenant and self._may_start(row, at, fronts)]
            taken += due[:asked]
        self.memory.release(taken)
        for row in taken:
            row.start(executor_id, at)
        taken.sort(key=_in_order)
        reached = {(row.tenant_id, row.claim_order): row for row in taken}
        return Claim(
            [row.claimed() for row in taken],
            [Front(tenant, rank, row.run_at) for (tenant, rank), row in reached.items()],
        )

    async def claim_job(
        self, executor_id: UUID, tenant_id: str, job_id: UUID, *, now: datetime | None = None
    ) -> ClaimedJob | None:
        """Take one waiting job by its id."""
        at = time_of(now)
        row = self.memory.jobs.get(job_id)
        if (
            row is None
            or executor_id not in self.memory.executors
            or row.tenant_id != tenant_id
            or row.state is not JobState.PENDING
            or row.run_at > at
            or self._is_paused(row)
        ):
            return None
        self.memory.release([row])
        row.start(executor_id, at)
        return row.claimed()

    async def finish(self, outcomes: Sequence[Outcome], *, now: datetime | None = None) -> list[Unwritten]:
        """Write outcomes under their fences."""
        at = time_of(now)
        return [left for outcome in outcomes if (left := self._finish(outcome, at)) is not None]

    def _finish(self, outcome: Outcome, at: datetime) -> Unwritten | None:
        job = outcome.job
        row = self.memory.fenced(job.job_id, job.claim_token)
        if row is not None:
            row.end(
                outcome.state, at, None if outcome.failed_reason is None else clean(outcome.failed_reason)
            )
            row.result = None if outcome.result is None else json.loads(outcome.result)
            row.retryable = row.retryable and outcome.retryable
            if row.state is not JobState.SUCCEEDED:
                severity = "WARNING" if row.state is JobState.FAILED else "INFO"
                self.memory.tell(row.state.lower(), severity, row, at)
            return None
        known = self.memory.jobs.get(job.job_id)
        if known is not None and known.claim_token == job.claim_token and known.state is outcome.state:
            return Unwritten(job.job_id, "repeated")
        if known is not None:
            told = {"outcome": str(outcome.state), "state": str(known.state)}
            self.memory.add_event("jobs.job.late_result", "WARNING", told, known.tenant_id, known.job_id, at)
        return Unwritten(job.job_id, "late")

    async def release(
        self, jobs: Sequence[tuple[Fenced, bool]], reason: str, *, now: datetime | None = None
    ) -> None:
        """Give running jobs back."""
        at = time_of(now)
        for job, replay in jobs:
            row = self.memory.fenced(job.job_id, job.claim_token)
            if row is None:
                continue
            if row.cancel_requested_at is not None:
                row.end(JobState.CANCELLED, at, clean(reason))
                self.memory.tell("cancelled", "INFO", row, at)
            elif replay:
                row.wait_again(at)
            else:
                row.end(JobState.FAILED, at, clean(reason))
                self.memory.tell("failed", "WARNING", row, at)

    async def note(self, notes: Sequence[Note]) -> None:
        """Write progress and task run ids of running jobs."""
        for note in notes:
            row = self.memory.fenced(note.job.job_id, note.job.claim_token)
            if row is not None:
                row.progress = (
                    row.progress
                    if note.progress is None
                    else json.loads(storable_json(json.loads(note.progress)))
                )
                row.task_run_id = note.task_run_id or row.task_run_id
                row.updated_at = time_of(None)

    async def held(self, executor_id: UUID) -> list[HeldJob]:
        """Return what an executor holds."""
        now = time_of(None)
        return [
            HeldJob(
                row.job_id,
                row.claimed().claim_token,
                row.tenant_id,
                row.cancel_requested_at is not None,
                row.claimed().deadline_at < now,
            )
            for row in self.memory.in_state(JobState.RUNNING)
            if row.executor_id == executor_id
        ]

    async def fail_overdue(
        self, *, margin: timedelta, tenant: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[UUID]:
        """End running jobs past their deadline or a cancel request."""
        at = time_of(now)
        running = (r for r in self.memory.in_state(JobState.RUNNING) if tenant in (None, r.tenant_id))
        overdue = [row for row in running if row.must_end_at < at - margin][:limit]
        for row in overdue:
            if row.cancel_requested_at is None:
                row.end(JobState.FAILED, at, f"timed out after {row.timeout.total_seconds():g} s")
            else:
                row.end(JobState.CANCELLED, at)
            self.memory.tell(row.state.lower(), "WARNING", row, at)
        return [row.job_id for row in overdue]

    def _waiting(self, queue: str) -> list[Row]:
        rows = (row for row in self.memory.in_state(JobState.PENDING) if row.queue == queue)
        return sorted(rows, key=_in_order)

    def _may_start(self, row: Row, at: datetime, fronts: Sequence[Front] | None) -> bool:
        # A suspect, whose executor has crashed before, is left to run alone.
        if row.run_at > at or row.crash_count > 0 or self._is_paused(row):
            return False
        return fronts is None or _front_of(row, fronts) <= row.run_at

    def _is_paused(self, row: Row) -> bool:
        paused = self.memory.paused
        return ("queue", row.queue) in paused or ("type", row.job_type) in paused


def _in_order(row: Row) -> tuple[int, datetime, UUID]:
    return row.claim_order, row.run_at, row.job_id


def _by_turns(tenants: Iterable[str], after: str) -> list[str]:
    """Return the tenants from the one behind `after`, around."""
    return sorted(tenants, key=lambda tenant: (tenant <= after, tenant))


def _front_of(row: Row, fronts: Sequence[Front]) -> datetime:
    ranks = {(front.tenant_id, front.claim_order): front.run_at for front in fronts}
    return ranks.get((row.tenant_id, row.claim_order), datetime.max.replace(tzinfo=UTC))
