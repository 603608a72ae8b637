"""Executors, their leases, and what is paused, in memory; see `PgDuty` for the same in Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from durable_jobs.states import JobState
from durable_jobs.stores.memory.rows import Memory, OnDuty, time_of
from durable_jobs.stores.protocols import Executor, ExecutorView, Paused, QueueUse


class MemoryHeart:
    """Beats for one executor."""

    def __init__(self, memory: Memory, executor_id: UUID) -> None:
        """Nothing happens yet."""
        self._memory = memory
        self._executor_id = executor_id

    def beat(self) -> bool:
        """Beat once; see `Heart.beat`."""
        known = self._memory.executors.get(self._executor_id)
        if known is not None:
            known.last_seen_at = time_of(None)
        return known is not None

    def must_stop(self, running: Collection[UUID]) -> bool:
        """Look for an execution that should have ended; see `Heart.must_stop`."""
        in_order = {
            row.claim_token
            for row in self._memory.in_state(JobState.RUNNING)
            if row.executor_id == self._executor_id and row.must_end_at >= time_of(None)
        }
        return not in_order.issuperset(running)

    def close(self) -> None:
        """Nothing is open."""


class MemoryDuty:
    """Who is on duty."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.memory = Memory()

    async def now(self) -> datetime:
        """Return the time of this process."""
        return time_of(None)

    async def enter_executor(self, executor: Executor) -> None:
        """Make an executor known."""
        now = time_of(None)
        known = self.memory.executors.setdefault(executor.executor_id, OnDuty(executor, now, now))
        known.last_seen_at = now

    async def beat(self, executor_id: UUID) -> bool:
        """Tell that an executor lives."""
        return self.heart(executor_id).beat()

    def heart(self, executor_id: UUID) -> MemoryHeart:
        """Return a way to beat from a thread."""
        return MemoryHeart(self.memory, executor_id)

    async def listen(self, on_queue: Callable[[str], None], on_cancel: Callable[[str], None]) -> None:
        """Call back when a queue gets work or a job of an executor is cancelled, until cancelled."""
        listener = (on_queue, on_cancel)
        self.memory.listeners.append(listener)
        try:
            on_queue("")
            await asyncio.Event().wait()
        finally:
            self.memory.listeners.remove(listener)

    async def leave_executor(self, executor_id: UUID) -> None:
        """Forget an executor and free its leases."""
        self.memory.executors.pop(executor_id, None)
        for lease in [lease for lease in self.memory.leases if lease[1] == executor_id]:
            del self.memory.leases[lease]

    async def set_idle(self, executor_id: UUID, idle: bool) -> None:
        """Say whether a registration must wake this executor."""
        if (known := self.memory.executors.get(executor_id)) is not None:
            known.idle = idle

    async def set_draining(self, executor_id: UUID) -> None:
        """Say that this executor claims no more."""
        if (known := self.memory.executors.get(executor_id)) is not None:
            known.draining, known.idle = True, False

    async def serve_less(
        self, executor_id: UUID, *, queues: Sequence[str], job_types: Sequence[str], left_out: Sequence[str]
    ) -> None:
        """Say what an executor still serves, and which types it claims no more."""
        if (known := self.memory.executors.get(executor_id)) is not None:
            known.executor = known.executor._replace(queues=tuple(queues), job_types=tuple(job_types))
            known.left_out = frozenset(left_out)

    async def executors(self) -> list[ExecutorView]:
        """Return all executors, newest first."""
        return [
            ExecutorView(
                known.executor,
                known.started_at,
                known.last_seen_at,
                time_of(None) - known.last_seen_at,
                known.idle,
                known.draining,
                {q: n for (q, holder), n in self.memory.leases.items() if holder == executor_id and n},
            )
            for executor_id, known in sorted(self.memory.executors.items(), key=_age, reverse=True)
        ]

    async def lease_queues(
        self, executor_id: UUID, uses: Sequence[QueueUse], *, stale_after: timedelta
    ) -> dict[str, int]:
        """Return how much of each queue's concurrency this executor holds now."""
        held = {use.queue: self._lease(executor_id, use, stale_after) for use in uses}
        if executor_id in self.memory.executors:
            self.memory.leases |= {(queue, executor_id): n for queue, n in held.items()}
        return held

    def _lease(self, executor_id: UUID, use: QueueUse, stale_after: timedelta) -> int:
        me = self.memory.executors.get(executor_id)
        alive_since = time_of(None) - stale_after
        sharers = [
            item
            for item in self.memory.executors.items()
            if use.queue in item[1].executor.queues
            and not item[1].draining
            and (item[1].last_seen_at > alive_since or item[0] == executor_id)
        ]
        if me is None or me.draining or not sharers:
            share = 0
        else:
            # The newest get what does not divide evenly.
            newer = sum(_age(item) > _age((executor_id, me)) for item in sharers)
            share = use.concurrency // len(sharers) + (newer < use.concurrency % len(sharers))
        others = sum(
            n
            for (queue, holder), n in self.memory.leases.items()
            if queue == use.queue and holder != executor_id
        )
        return max(use.in_flight, min(share, use.concurrency - others))

    async def silent_executors(self, *, stale_after: timedelta) -> list[UUID]:
        """Return executors that have not beaten for so long."""
        limit = time_of(None) - stale_after
        return [id_ for id_, known in self.memory.executors.items() if known.last_seen_at < limit]

    async def tenants(self, kind: str, *, queue: str | None = None) -> list[str]:
        """Return tenants with jobs of a kind."""
        rows = self.memory.jobs.values()
        match kind:
            case "pending":
                found = {r.tenant_id for r in rows if r.state is JobState.PENDING and r.queue == queue}
            case "running":
                found = {r.tenant_id for r in rows if r.state is JobState.RUNNING}
            case "failed":
                found = {r.tenant_id for r in rows if r.state is JobState.FAILED and r.retryable}
            case "unpublished":
                found = {e["tenant_id"] for e in self.memory.events if e["published_at"] is None} - {None}
            case "unposted":
                found = {e["tenant_id"] for e in self.memory.events if e["posted_at"] is None} - {None}
            case "any":
                found = {r.tenant_id for r in rows}
            case "purgeable":
                published = {e["tenant_id"] for e in self.memory.events if e["published_at"] is not None}
                found = {r.tenant_id for r in rows} | {e.tenant_id for e in self.memory.effects.values()}
                found |= published - {None}
            case _:
                raise ValueError(f"unknown kind of tenants {kind!r}")
        return sorted(found)

    async def pause(self, kind: str, name: str, *, by: str | None = None) -> None:
        """Hold a queue or a type back."""
        if (kind, name) not in self.memory.paused:
            self.memory.paused[kind, name] = Paused(kind, name, time_of(None), by)
            self._tell_paused("paused", kind, name, by)

    async def resume(self, kind: str, name: str, *, by: str | None = None) -> bool:
        """Let it go on."""
        if self.memory.paused.pop((kind, name), None) is None:
            return False
        self._tell_paused("resumed", kind, name, by)
        return True

    def _tell_paused(self, what: str, kind: str, name: str, by: str | None) -> None:
        payload = {"kind": kind, "queue" if kind == "queue" else "jobType": name, "by": by}
        self.memory.add_event(f"jobs.queue.{what}", "INFO", payload, None, None, time_of(None))

    async def paused(self) -> list[Paused]:
        """Return what is paused."""
        return [self.memory.paused[key] for key in sorted(self.memory.paused)]


def _age(item: tuple[UUID, OnDuty]) -> tuple[object, UUID]:
    return item[1].started_at, item[0]
