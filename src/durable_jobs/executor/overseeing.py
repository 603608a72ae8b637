"""Watches the running jobs: timeouts, cancel requests, lost fences, code that does not stop.

Once in a while it compares what the store says this executor holds with what really runs here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor.execution import Execution, Stop
from durable_jobs.executor.outcomes import OutcomeWriter
from durable_jobs.jobs import ClaimedJob
from durable_jobs.stores.protocols import ExecutorStore, HeldJob, Note

logger = structlog.get_logger(__name__)

SWEEP_S = 0.25
NOTE_EVERY_S = 1.0
STOP_GRACE_S = 5.0
"""How long code that was asked to stop may go on before the shift goes on without it."""
ANSWER_MARGIN_S = 1.0


class Overseer:
    """One sweep for all running jobs instead of a timer for each."""

    def __init__(
        self,
        store: ExecutorStore,
        executor_id: UUID,
        running: dict[UUID, Execution],
        writer: OutcomeWriter,
        leave: Callable[[str], None],
        drop: Callable[[ClaimedJob], None],
        *,
        answers_within: timedelta,
    ) -> None:
        """Watch what a shift runs.

        Args:
            store: where the jobs are.
            executor_id: the shift's.
            running: the shift's own, by claim token.
            writer: takes the outcome of code that does not stop.
            leave: asks the shift to end.
            drop: forgets a job that the store has given up, and frees its place.
            answers_within: after this time the store's answer to a claim does not come any more.
        """
        self._store = store
        self._executor_id = executor_id
        self._running = running
        self._writer = writer
        self._leave = leave
        self._drop = drop
        self._answers_within_s = answers_within.total_seconds() + ANSWER_MARGIN_S
        self._notes: dict[UUID, Note] = {}
        self._noted_at = 0.0
        self._unknown_since: dict[UUID, float] = {}
        self._audit_now = asyncio.Event()
        self._swept_at = time.monotonic()

    def report(self, job: ClaimedJob, progress: str | None, task_run_id: UUID | None) -> None:
        """Keep what a job reports until the next write; may be called from any thread."""
        known = self._notes.get(job.claim_token, Note(job))
        self._notes[job.claim_token] = Note(
            job,
            progress if progress is not None else known.progress,
            task_run_id if task_run_id is not None else known.task_run_id,
        )

    def stood_still(self) -> float:
        """Return for how long (s) no sweep was made: a sign that the event loop is blocked."""
        return time.monotonic() - self._swept_at

    def unfinished(self) -> set[UUID]:
        """Return the claims whose code has not ended; may be called from any thread."""
        return {
            token
            for token, execution in list(self._running.items())
            if execution.task is not None and not execution.task.done()
        }

    def audit_soon(self) -> None:
        """Compare with the store at the next sweep."""
        self._audit_now.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._swept_at = time.monotonic()
            self._sweep()
            try:
                if self._audit_now.is_set():
                    await self.audit()
                if self._notes and time.monotonic() - self._noted_at > NOTE_EVERY_S:
                    await self._write_notes()
            except StoreUnavailable as error:
                logger.warning("running jobs not compared with the store", error=str(error))

    def _sweep(self) -> None:
        now = time.monotonic()
        for execution in list(self._running.values()):
            if execution.stopped is None:
                if execution.overdue:
                    execution.stop(Stop.TIMEOUT)
            elif execution.stop_asked_at is not None and execution.task is not None:
                waited = now - execution.stop_asked_at
                if not execution.task.done() and waited > STOP_GRACE_S:
                    self._go_on_without(execution, force=waited > 2 * STOP_GRACE_S)

    def _go_on_without(self, execution: Execution, *, force: bool) -> None:
        """Leave a thread, or a task that swallows its cancellation, to itself; the fence is ours."""
        if execution.task is not None:
            execution.task.cancel()
        self._leave(f"code of {execution.job.job_type} {execution.job.job_id} cannot be interrupted")
        if not force:
            return
        execution.stop_asked_at = None
        if (outcome := execution.stop_outcome()) is not None:
            self._writer.put(outcome)
        elif execution.stopped is Stop.FENCED:
            self._drop(execution.job)

    async def audit(self) -> None:
        """Compare what the store says with what runs here, and mend the difference."""
        self._audit_now.clear()
        # Only what runs already: the answer may be older than a claim that comes in meanwhile.
        before = list(self._running.items())
        held = {job.claim_token: job for job in await self._store.held(self._executor_id)}
        for token, execution in before:
            job = held.get(token)
            if job is None:
                if token in self._running and execution.task is not None and not execution.task.done():
                    logger.warning("a job was given up by the store", job_id=str(execution.job.job_id))
                    execution.stop(Stop.FENCED)
            elif job.cancel_requested and execution.stopped is None:
                execution.stop(Stop.CANCEL)
            elif job.overdue and execution.stopped is None:
                execution.stop(Stop.TIMEOUT)
        await self._give_back_unknown(held)

    async def _give_back_unknown(self, held: dict[UUID, HeldJob]) -> None:
        """Release claims whose answer cannot come any more; until then it may be on its way."""
        now = time.monotonic()
        self._unknown_since = {
            token: self._unknown_since.get(token, now) for token in held if token not in self._running
        }
        unanswered = [
            held[token]
            for token, since in self._unknown_since.items()
            if now - since > self._answers_within_s
        ]
        await self._release_unanswered(unanswered)

    async def give_back_unanswered(self) -> None:
        """Release every claim of which nothing runs here; at the end, when no answer is awaited any more."""
        held = await self._store.held(self._executor_id)
        await self._release_unanswered([job for job in held if job.claim_token not in self._running])

    async def _release_unanswered(self, jobs: Sequence[HeldJob]) -> None:
        if jobs:
            logger.warning("claims without an answer are given back", jobs=len(jobs))
            # They never began, so any type may run again.
            await self._store.release([(job, True) for job in jobs], "claim without an answer")

    async def _write_notes(self) -> None:
        self._noted_at = time.monotonic()
        notes, self._notes = self._notes, {}
        try:
            # A copy: a thread that was reporting when they were taken may still add its own.
            await self._store.note([n for token, n in list(notes.items()) if token in self._running])
        except StoreUnavailable:
            self._notes = notes | self._notes
            raise
