"""Watches the running jobs: timeouts, cancel requests, lost fences, code that does not stop.

Once in a while it compares what the store says this executor holds with what really runs here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
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


class Overseer:
    """One sweep for all running jobs instead of a timer for each."""

    def __init__(
        self,
        store: ExecutorStore,
        executor_id: UUID,
        running: dict[UUID, Execution],
        writer: OutcomeWriter,
        leave: Callable[[str], None],
    ) -> None:
        """`running` is the shift's own, by claim token."""
        self._store = store
        self._executor_id = executor_id
        self._running = running
        self._writer = writer
        self._leave = leave
        self._notes: dict[UUID, Note] = {}
        self._noted_at = 0.0
        self._unknown: set[UUID] = set()
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

    @property
    def executions(self) -> int:
        """How many jobs run here."""
        return len(self._running)

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
        if force and (outcome := execution.stop_outcome()) is not None:
            execution.stop_asked_at = None
            self._writer.put(outcome)

    async def audit(self) -> None:
        """Compare what the store says with what runs here, and mend the difference."""
        self._audit_now.clear()
        held = {job.claim_token: job for job in await self._store.held(self._executor_id)}
        for token, execution in list(self._running.items()):
            job = held.get(token)
            if job is None:
                if execution.task is not None and not execution.task.done():
                    logger.warning("a job was given up by the store", job_id=str(execution.job.job_id))
                    execution.stop(Stop.FENCED)
            elif job.cancel_requested and execution.stopped is None:
                execution.stop(Stop.CANCEL)
            elif job.overdue and execution.stopped is None:
                execution.stop(Stop.TIMEOUT)
        await self._give_back_unknown(held)

    async def _give_back_unknown(self, held: dict[UUID, HeldJob]) -> None:
        """Release claims whose answer never came: seen twice, and nothing of them runs here."""
        unknown = {token for token in held if token not in self._running}
        twice = [held[token] for token in unknown & self._unknown]
        self._unknown = unknown
        if twice:
            logger.warning("claims without an answer are given back", jobs=len(twice))
            await self._store.release([(job, True) for job in twice], "claim without an answer")

    async def _write_notes(self) -> None:
        self._noted_at = time.monotonic()
        notes, self._notes = self._notes, {}
        await self._store.note([n for token, n in notes.items() if token in self._running])
