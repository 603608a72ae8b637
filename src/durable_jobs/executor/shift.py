"""A shift: one process that claims and executes until it is relieved, stopped, or out of work.

Everything about its jobs is decided under fences in the store, so a shift may be wrong about
itself, be frozen or die at any line, and no job is lost or done twice by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import structlog
from uuid_utils.compat import uuid7

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor.bounds import QueueBounds
from durable_jobs.executor.claiming import Claimer
from durable_jobs.executor.duty import Duty
from durable_jobs.executor.ending import Ending
from durable_jobs.executor.execution import Execution, Stop
from durable_jobs.executor.heartbeat import Heartbeat
from durable_jobs.executor.objects_aside import objects_aside
from durable_jobs.executor.outcomes import OutcomeWriter
from durable_jobs.executor.overseeing import Overseer
from durable_jobs.executor.served import Served
from durable_jobs.executor.summary import ShiftSummary
from durable_jobs.executor.visibility import RateCap, Show
from durable_jobs.jobs import ClaimedJob, Outcome
from durable_jobs.queues import Queue
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Executor, ExecutorStore, Unwritten

logger = structlog.get_logger(__name__)


class Shift:
    """One shift; `run` once."""

    def __init__(
        self,
        store: ExecutorStore,
        registry: Registry,
        settings: Settings,
        *,
        queues: Sequence[str] | None = None,
        until_empty: bool = False,
        only: tuple[str, UUID] | None = None,
        flow_run_id: UUID | None = None,
        show: Show | None = None,
    ) -> None:
        """Prepare a shift.

        Args:
            store: an open store.
            queues: names of the queues to serve, beside the crew; all shared ones when not given.
            until_empty: end when nothing is due; such a shift stays outside of the crew.
            only: tenant and id of the one job to execute, alone; then `queues` must be empty.
            flow_run_id: the Prefect flow run that this is, for people.
            show: wraps executions that are to be seen as task runs.

        Raises:
            UnknownQueue: a queue is not declared.
        """
        self._store, self._registry, self._settings = store, registry, settings
        self._until_empty = until_empty
        self._only = only
        self._show = show
        self._cap = RateCap(settings.visible_task_runs_per_second)
        served = _served(registry, queues)
        self.executor = Executor(
            uuid7(),
            socket.gethostname(),
            os.getpid(),
            tuple(q.name for q in served),
            flow_run_id,
            # One that serves some queues only must not relieve those that serve all.
            queues is None and not until_empty and only is None,
            tuple(t.name for t in registry.job_types.values() if t.queue in {q.name for q in served}),
        )
        self.summary = ShiftSummary(self.executor.executor_id)
        self._bounds = QueueBounds(served)
        self._served = Served(
            store, self.executor, self._bounds, {t.name: t.queue for t in registry.job_types.values()}
        )
        self._running: dict[UUID, Execution] = {}
        self._undeclared: list[ClaimedJob] = []
        self._leaving = asyncio.Event()
        self._why: Stop | None = None
        self._writer = OutcomeWriter(store, self._written)
        self._ending = Ending(store, self._running, self._writer, self.summary)
        self._claimer = Claimer(
            store, self.executor.executor_id, self._bounds, self._start, poll_interval=settings.poll_interval
        )
        self._overseer = Overseer(
            store,
            self.executor.executor_id,
            self._running,
            self._writer,
            self.leave,
            self._settle,
            answers_within=settings.database_timeout,
        )
        self._duty = Duty(
            store,
            self.executor,
            self._bounds,
            self._served,
            settings,
            self._overseer,
            self.leave,
            self._given_up,
        )

    def leave(self, because: str, why: Stop | None = None) -> None:
        """Claim no more, and end: after the running jobs, or with a `why` by stopping them."""
        if self._why is None:
            self._why = why
        if not self._leaving.is_set():
            self.summary.ended_because = because
            self._leaving.set()
        self._claimer.wake("")

    def note_interrupt(self) -> None:
        """Take down that somebody pressed Ctrl-C: what it raises amid a job is not the job's failure.

        It acts on nothing and may be called by a signal's handler; the interruption itself ends the shift.
        """
        for execution in list(self._running.values()):
            execution.note(Stop.SHUTDOWN)

    async def run(self) -> ShiftSummary:
        """Work until there is a reason to end, and return what was done."""
        with objects_aside():
            return await self._run()

    async def _run(self) -> ShiftSummary:
        loop = asyncio.get_running_loop()

        def forgotten() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._given_up)

        await self._store.enter_executor(self.executor)
        heartbeat = Heartbeat(
            self._store.heart(self.executor.executor_id),
            self._settings.heartbeat_interval,
            forgotten,
            self._overseer,
        )
        heartbeat.start()
        helpers = [
            asyncio.create_task(job)
            for job in (
                self._writer.run(),
                self._store.listen(self._claimer.wake, self._on_cancel),
                self._duty.run(),
                self._overseer.run(),
            )
        ]
        try:
            await self._work(helpers)
            await self._end(helpers)
        except BaseException:
            # Cancelled, or a fault of ours: nothing may run on here once the store gives it to others.
            await asyncio.shield(self._ending.stop_all(Stop.SHUTDOWN))
            raise
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await asyncio.to_thread(heartbeat.stop)
            await self._forget()
        self.summary.ended_at = datetime.now(UTC)
        return self.summary

    def _given_up(self) -> None:
        self.leave("the store has given this shift up", Stop.FENCED)

    async def _work(self, helpers: Iterable[asyncio.Task[None]]) -> None:
        if self._only is not None:
            await self._claim_only(*self._only)
            return
        await self._duty.lease()
        while not self._leaving.is_set():
            _raise_faults(helpers)
            if await self._claimer.fill():
                # Let the jobs that were just started take their first step.
                await asyncio.sleep(0)
                await self._give_back_undeclared()
                continue
            if self._until_empty and not self._running and await self._nothing_is_due():
                self.leave("nothing is due")
                return
            await self._claimer.sleep()

    async def _nothing_is_due(self) -> bool:
        if self._claimer.found_nothing:
            return True
        # A queue whose places others hold cannot be claimed from, but it can be looked at.
        held_by_others = self._claimer.only_lacks_places()
        if not held_by_others:
            return False
        try:
            counts = await self._store.counts()
        except StoreUnavailable:
            return False
        now = datetime.now(UTC)
        due = [
            c for c in counts if c.state is JobState.PENDING and c.oldest_run_at and c.oldest_run_at <= now
        ]
        return not held_by_others & {count.queue for count in due}

    async def _claim_only(self, tenant: str, job_id: UUID) -> None:
        job = await self._store.claim_job(self.executor.executor_id, tenant, job_id)
        if job is not None:
            self._start(job)
            await self._give_back_undeclared()
        self.leave("the job is done" if job is not None else "the job was not waiting")

    async def _end(self, helpers: Iterable[asyncio.Task[None]]) -> None:
        """Finish what runs, for as long as the reason to leave allows."""
        await self._duty.drain()
        grace = self._settings.shutdown_grace.total_seconds()
        deadline: float | None = None
        while self._running and self._why is not Stop.FENCED:
            _raise_faults(helpers)
            if self._only is None:
                await self._ending.hand_over(self._settle)
            now = asyncio.get_running_loop().time()
            if self._why is Stop.SHUTDOWN:
                deadline = deadline or now + grace
                if now >= deadline:
                    break
            self._bounds.freed.clear()
            try:
                async with asyncio.timeout(min(0.5, deadline - now) if deadline else 0.5):
                    await self._bounds.freed.wait()
            except TimeoutError:
                continue
        if self._running:
            await self._ending.stop_all(self._why or Stop.SHUTDOWN)

    async def _forget(self) -> None:
        try:
            if self._why is not Stop.FENCED:
                await self._overseer.give_back_unanswered()
            await self._store.leave_executor(self.executor.executor_id)
        except StoreUnavailable as error:
            logger.warning("this shift is left to the reconciler", error=str(error))

    async def _give_back_undeclared(self) -> None:
        jobs, self._undeclared = self._undeclared, []
        if not jobs:
            return
        self.summary.undeclared.update(job.job_type for job in jobs)
        try:
            await self._served.give_back(jobs)
        except StoreUnavailable as error:
            logger.warning("jobs of undeclared types are left to the audit", error=str(error))
        for job in jobs:
            self._bounds.give_back(job.queue)

    def _start(self, job: ClaimedJob) -> None:
        declared = self._registry.job_types.get(job.job_type)
        if declared is None:
            self._undeclared.append(job)
            return
        execution = Execution(job, declared, self._store)
        self._running[job.claim_token] = execution
        self.summary.claimed += 1
        execution.task = asyncio.create_task(self._execute(execution))

    async def _execute(self, execution: Execution) -> None:
        outcome = await execution.run(
            self._overseer.report,
            show=self._visible(execution),
            max_result_bytes=self._settings.max_payload_bytes,
        )
        if outcome is not None:
            execution.has_outcome = True
            if execution.task_run_id is not None:
                outcome = outcome._replace(task_run_id=execution.task_run_id)
            self._writer.put(outcome)
            if self._writer.waiting >= len(self._running):
                self._writer.flush()
        elif execution.stopped is Stop.FENCED:
            self._settle(execution.job)

    def _visible(self, execution: Execution) -> Show | None:
        if self._show is None or execution.declared.visibility == "history":
            return None
        if not self._cap.allows():
            self.summary.not_shown += 1
            return None
        self.summary.shown += 1
        return self._show

    def _written(self, outcomes: Sequence[Outcome], unwritten: Sequence[Unwritten]) -> None:
        late = {u.job_id for u in unwritten if u.why == "late"}
        for outcome in outcomes:
            if outcome.job.job_id in late:
                self.summary.late += 1
            else:
                self.summary.written(outcome)
            self._settle(outcome.job)

    def _settle(self, job: ClaimedJob) -> None:
        if self._running.pop(job.claim_token, None) is not None:
            self._bounds.give_back(job.queue)

    def _on_cancel(self, executor_id: str) -> None:
        if executor_id == str(self.executor.executor_id):
            self._overseer.audit_soon()


def _raise_faults(helpers: Iterable[asyncio.Task[None]]) -> None:
    for helper in helpers:
        if helper.done():
            helper.result()


def _served(registry: Registry, names: Sequence[str] | None) -> list[Queue]:
    if names is None:
        return [queue for queue in registry.queues.values() if queue.isolation == "shared"]
    return [registry.queue(name) for name in names]
