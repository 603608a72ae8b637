"""What people on duty and the reconciler do with jobs, in memory; see `JobsOperator`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

from durable_jobs.errors import NotAllowed
from durable_jobs.jobs import Job
from durable_jobs.states import LIVE, JobState
from durable_jobs.stores.memory.execution import MemoryExecution
from durable_jobs.stores.memory.rows import Row, time_of
from durable_jobs.stores.protocols import Decision, NewEvent, QueueCount, StalledQueue
from durable_jobs.texts import clean


class MemoryOperator(MemoryExecution):
    """Cancel, retry, resubmit, orphans, figures."""

    async def cancel(self, job_id: UUID, *, by: str | None = None, now: datetime | None = None) -> Job:
        """Cancel a waiting or failed job, ask a running one to stop."""
        row, at = self.memory.mine(job_id), time_of(now)
        if row.job().is_terminal:
            raise NotAllowed(f"job {job_id} is {row.state}, which is final: there is nothing to cancel")
        if row.state is JobState.RUNNING:
            if row.cancel_requested_at is None:
                row.cancel_requested_at = row.updated_at = at
                for _, on_cancel in self.memory.listeners:
                    on_cancel(str(row.executor_id))
        else:
            self.memory.release([row])
            row.end(JobState.CANCELLED, at, row.failed_reason)
            row.cancel_requested_at = at
            self.memory.tell("cancelled", "INFO", row, at, by=by)
        return row.job()

    async def retry(
        self,
        job_id: UUID,
        *,
        max_pending: int | None,
        by: str | None = None,
        run_at: datetime | None = None,
        now: datetime | None = None,
    ) -> Job:
        """Make the one retry of a failed job."""
        row, at = self.memory.mine(job_id), time_of(now)
        if row.state is JobState.RETRIED and row.retry_child_id is not None:
            return self.memory.mine(row.retry_child_id).job()
        if row.state is JobState.ABANDONED:
            return row.job()
        if row.state is not JobState.FAILED or not row.retryable or self._resubmissions(row):
            failed = row.state is JobState.FAILED
            why = "not retryable, or was resubmitted" if failed else f"{row.state}, not FAILED"
            raise NotAllowed(f"job {job_id} cannot be retried: it is {why}")
        if row.retry_count >= row.max_retries:
            row.state, row.updated_at = JobState.ABANDONED, at
            self.memory.tell("abandoned", "CRITICAL", row, at)
            return row.job()
        child = self._again(row, max_pending, at)
        child.run_at = run_at or at
        self._make_child_of(row, child)
        # The event tells how the job was when it was retried.
        self.memory.tell("retried", "INFO", row, at, retryChildId=str(child.job_id), by=by)
        row.state, row.retry_child_id, row.updated_at = JobState.RETRIED, child.job_id, at
        return child.job()

    async def resubmit(
        self,
        job_id: UUID,
        *,
        max_pending: int | None,
        retryable: bool = True,
        by: str | None = None,
        now: datetime | None = None,
    ) -> Job:
        """Make a new root of a failed or abandoned job."""
        row, at = self.memory.mine(job_id), time_of(now)
        if row.state not in (JobState.FAILED, JobState.ABANDONED):
            raise NotAllowed(f"job {job_id} is {row.state}: only FAILED and ABANDONED jobs are resubmitted")
        live = next((other for other in self._resubmissions(row) if other.state in LIVE), None)
        if live is not None:
            return live.job()
        root = self._again(row, max_pending, at)
        root.replay_of, root.retryable = row.job_id, retryable
        root.origin_job_id = row.origin_job_id or row.root_job_id
        root.submitted_by = by or row.submitted_by
        root.crash_count = min(row.crash_count, 1)
        self.memory.tell("resubmitted", "INFO", row, at, newJobId=str(root.job_id), by=by)
        return root.job()

    def _again(self, row: Row, max_pending: int | None, at: datetime) -> Row:
        """Add a waiting job with the same request."""
        shard = self.memory.reserve(row.queue, max_pending, 1)
        new_id = uuid7()
        new = Row(
            new_id,
            row.tenant_id,
            row.job_type,
            row.queue,
            row.priority,
            at,
            row.payload,
            row.payload_version,
            row.payload_hash,
            True,
            row.max_retries,
            row.timeout,
            new_id,
            at,
            at,
            idempotency_key=row.idempotency_key,
            correlation_id=row.correlation_id,
            submitted_by=row.submitted_by,
            pending_shard=shard,
        )
        self.memory.jobs[new_id] = new
        self.memory.wake(new.queue)
        return new

    def _make_child_of(self, row: Row, child: Row) -> None:
        child.retry_count = row.retry_count + 1
        child.parent_job_id, child.root_job_id = row.job_id, row.root_job_id
        child.origin_job_id = row.origin_job_id
        child.crash_count = row.crash_count

    def _resubmissions(self, row: Row) -> list[Row]:
        return [other for other in self.memory.of(row.tenant_id) if other.replay_of == row.job_id]

    async def settle_orphans(
        self,
        tenant_id: str,
        silent: Sequence[UUID],
        decide: Callable[[Job], Decision | None],
        *,
        max_crashes: int,
        skip: Collection[UUID] = (),
        limit: int = 10,
        now: datetime | None = None,
    ) -> dict[UUID, JobState]:
        """Decide about orphans and settle them."""
        at = time_of(now)
        orphans = [
            row
            for row in self.memory.in_state(JobState.RUNNING)
            if row.tenant_id == tenant_id
            and row.job_id not in skip
            and (row.executor_id in silent or row.executor_id not in self.memory.executors)
        ][:limit]
        decisions = [(row, decide(row.job())) for row in orphans]
        decided = [(row, decision) for row, decision in decisions if decision is not None]
        for row, decision in decided:
            self._settle(row, decision, max_crashes, at)
        return {row.job_id: row.state for row, _ in decided}

    def _settle(self, row: Row, decision: Decision, max_crashes: int, at: datetime) -> None:
        row.crash_count += decision.charged
        given_up = decision.charged and row.crash_count >= max_crashes
        if decision.replay and not given_up and row.cancel_requested_at is None:
            row.wait_again(at)
        else:
            state = JobState.FAILED if row.cancel_requested_at is None else JobState.CANCELLED
            row.end(state, at, clean(decision.reason))
            row.retryable = row.retryable and decision.retryable and not given_up
        severity = "CRITICAL" if given_up else "WARNING"
        self.memory.tell("stalled", severity, row, at, crashCount=row.crash_count)

    async def counts(self) -> list[QueueCount]:
        """Return how many jobs are live or dead letters."""
        groups: dict[tuple[str, str, JobState], list[Row]] = defaultdict(list)
        for row in self.memory.jobs.values():
            if row.state in LIVE or self._is_letter(row):
                groups[row.queue, row.job_type, row.state].append(row)
        return [QueueCount(*key, len(rows), min(r.run_at for r in rows)) for key, rows in groups.items()]

    async def tell_stalled(self, *, after: timedelta, now: datetime | None = None) -> list[StalledQueue]:
        """Return the queues whose oldest due job waits for longer."""
        at = time_of(now)
        waiting: dict[str, list[Row]] = defaultdict(list)
        for row in self.memory.in_state(JobState.PENDING):
            if not self._is_paused(row):
                waiting[row.queue].append(row)
        stalled = [
            StalledQueue(queue, len(rows), at - oldest)
            for queue, rows in sorted(waiting.items())
            if (oldest := min(row.run_at for row in rows)) < at - after
        ]
        for one in stalled:
            if one.queue not in self.memory.stalled:
                payload = {
                    "queue": one.queue,
                    "pending": one.pending,
                    "oldestWaitsSeconds": int(one.waited.total_seconds()),
                }
                self.memory.add_event("jobs.queue.stalled", "WARNING", payload, None, None, at)
        self.memory.stalled = {one.queue for one in stalled}
        return stalled

    def _is_letter(self, row: Row) -> bool:
        return row.state is JobState.FAILED and row.retryable and not self._resubmissions(row)

    async def record_events(self, events: Sequence[NewEvent]) -> None:
        """Put events into the outbox."""
        at = time_of(None)
        for e in events:
            self.memory.add_event(e.event, e.severity, dict(e.payload), e.tenant_id, e.job_id, at)
