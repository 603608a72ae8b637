"""The outbox in memory; see `EventOutbox`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durable_jobs.outbox.store import Awaited, Backlog, OutboxEvent, Posting
from durable_jobs.stores.memory.rows import Memory, time_of


class MemoryOutbox:
    """Takes, awaits and settles events."""

    memory: Memory

    async def take_events(self, limit: int, *, now: datetime | None = None) -> list[OutboxEvent]:
        """Take events that are to be posted."""
        turns: Counter[str | None] = Counter()
        ranked: list[tuple[int, datetime, dict[str, Any]]] = []
        for event in sorted(self._unpublished(), key=lambda e: e["occurred_at"]):
            if event["posted_at"] is None:
                turns[event["tenant_id"]] += 1
                ranked.append((turns[event["tenant_id"]], event["occurred_at"], event))
        taken = [event for *_, event in sorted(ranked, key=lambda entry: entry[:2])[:limit]]
        for event in taken:
            event["posted_at"] = time_of(now)
        return [self._on_its_way(event) for event in sorted(taken, key=lambda e: e["occurred_at"])]

    async def awaited_events(
        self, *, settled: timedelta, limit: int, now: datetime | None = None
    ) -> list[Awaited]:
        """Return postings that are to be looked for in Prefect."""
        at = time_of(now)
        awaited = [
            Awaited(e["event_id"], e["occurred_at"], e["posted_at"], at - e["posted_at"])
            for e in self._unpublished()
            if e["posted_at"] is not None and e["posted_at"] <= at - settled
        ]
        return sorted(awaited, key=lambda a: (a.posted_at, a.occurred_at))[:limit]

    async def settle_events(
        self, stored: Sequence[UUID], lost: Sequence[Posting], *, now: datetime | None = None
    ) -> None:
        """Write down what Prefect has and what it lost."""
        for event in self._unpublished():
            if event["event_id"] in stored:
                event["published_at"] = time_of(now)
            elif Posting(event["event_id"], event["posted_at"]) in lost:
                event["posted_at"] = None

    async def event_backlog(self) -> Backlog:
        """Return how many events are not published yet."""
        events = self._unpublished()
        posted = sum(event["posted_at"] is not None for event in events)
        oldest = min((event["occurred_at"] for event in events), default=None)
        return Backlog(len(events) - posted, posted, oldest)

    def _unpublished(self) -> list[dict[str, Any]]:
        return [event for event in self.memory.events if event["published_at"] is None]

    def _on_its_way(self, event: dict[str, Any]) -> OutboxEvent:
        row = self.memory.jobs.get(event["job_id"])
        executor = self.memory.executors.get(row.executor_id) if row and row.executor_id else None
        return OutboxEvent(
            event["event_id"],
            event["tenant_id"],
            event["event"],
            event["job_id"],
            event["severity"],
            json.dumps(event["payload"], ensure_ascii=False),
            event["occurred_at"],
            event["posted_at"],
            (row.flow_run_id if row else None) or (executor.executor.flow_run_id if executor else None),
            row.task_run_id if row else None,
        )
