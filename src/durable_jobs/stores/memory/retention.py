"""Retention in memory; see `PgRetention` for the same in Postgres."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from durable_jobs.effects.store import EffectState
from durable_jobs.states import JobState
from durable_jobs.stores.memory.rows import EffectRow, Memory, PurgeRunRow, Row, time_of
from durable_jobs.stores.retention import (
    AgedPage,
    DueGroup,
    DueJobs,
    DueRows,
    GoneGroup,
    GonePage,
    Limits,
    Position,
    Purgeable,
    PurgeState,
    PurgeTotals,
    require_aware,
)

EXAMPLES = 5
Placed = tuple[datetime, UUID, Any]


class MemoryRetention:
    """Looking at history, purging it, and remembering how that went."""

    memory: Memory

    async def retention_limits(
        self, jobs: timedelta, effects: timedelta, *, now: datetime | None = None
    ) -> Limits:
        """Return what is due at the present time."""
        at = time_of(None if now is None else require_aware("now", now))
        return Limits(at, at - jobs, at - effects)

    @asynccontextmanager
    async def only_one(self, name: str) -> AsyncIterator[bool]:
        """Hold a lock for the block; False when it is held."""
        alone = name not in self.memory.locks
        self.memory.locks.add(name)
        try:
            yield alone
        finally:
            if alone:
                self.memory.locks.discard(name)

    async def has_rows(self) -> bool:
        """Tell whether there is any job."""
        return bool(self.memory.jobs)

    async def list_due_jobs(
        self, tenant_id: str, limits: Limits, *, after: Position | None = None, limit: int
    ) -> DueJobs:
        """Look at a page of a tenant's old history."""
        page = self._old_jobs(tenant_id, limits, after, limit)
        due = [row for *_, row in page if self._chain_is_due(row.root_job_id, limits)]
        groups: dict[tuple[str, JobState], list[Row]] = defaultdict(list)
        for row in due:
            groups[row.job_type, row.state].append(row)
        return DueJobs(
            **_walked(page),
            due=len(due),
            bytes=sum(map(_bytes, due)),
            examples=tuple(row.job_id for row in due[:EXAMPLES]),
            groups=tuple(
                DueGroup(
                    job_type=job_type,
                    state=state,
                    jobs=len(rows),
                    bytes=sum(map(_bytes, rows)),
                    oldest=min(_ended(row) for row in rows),
                    youngest=max(_ended(row) for row in rows),
                )
                for (job_type, state), rows in groups.items()
            ),
        )

    async def list_due(
        self,
        what: Purgeable,
        tenant_id: str | None,
        limits: Limits,
        *,
        after: Position | None = None,
        limit: int,
    ) -> DueRows:
        """Look at a page of effects or published events."""
        if what == "effects":
            effects = self._old_effects(tenant_id, limits, after, limit)
            due = sum(self._effect_is_due(effect, limits) for *_, effect in effects)
            return DueRows(**_walked(effects), due=due)
        events = self._old_events(tenant_id, limits, after, limit)
        return DueRows(**_walked(events), due=sum(self._event_is_due(event, limits) for *_, event in events))

    async def purge(
        self,
        what: Purgeable,
        run_id: UUID | None,
        tenant_id: str | None,
        limits: Limits,
        *,
        after: Position | None = None,
        limit: int,
    ) -> GonePage:
        """Purge what is due on a page."""
        for name, moment in limits._asdict().items():
            require_aware(name, moment)
        run = self.memory.purge_runs.get(run_id) if run_id is not None else None
        if what == "jobs":
            gone = self._purge_jobs(str(tenant_id), limits, after, limit)
        elif what == "effects":
            gone = self._purge_effects(tenant_id, limits, after, limit)
        else:
            gone = self._purge_events(tenant_id, limits, after, limit)
        if run is not None:
            took = PurgeTotals(
                gone.gone if what == "jobs" else 0,
                gone.events + (gone.gone if what == "events" else 0),
                gone.gone if what == "effects" else 0,
                gone.bytes,
            )
            run.totals = PurgeTotals(*(a + b for a, b in zip(run.totals, took, strict=True)))
        return gone

    async def count_history(
        self,
        what: Purgeable,
        tenant_id: str,
        edges: Sequence[datetime],
        *,
        after: Position | None = None,
        limit: int,
    ) -> AgedPage:
        """Count a page of history by age."""
        rows: Iterable[Placed]
        if what == "jobs":
            rows = (
                (r.completed_at, r.job_id, r) for r in self.memory.of(tenant_id) if r.completed_at is not None
            )
        else:
            effects = self.memory.effects.values()
            rows = (
                (e.created_at, e.id, e)
                for e in effects
                if e.tenant_id == tenant_id and e.state is EffectState.CONFIRMED
            )
        page = _page(rows, after, limit)
        return AgedPage(**_walked(page), buckets=Counter(bisect_right(edges, at) for at, *_ in page))

    async def cancelled_since(self, tenant_id: str, since: datetime) -> int:
        """Return how many jobs were cancelled since."""
        rows = self.memory.of(tenant_id)
        return sum(row.state is JobState.CANCELLED and _ended(row) >= since for row in rows)

    async def begin_purge(self, limits: Limits) -> UUID:
        """Record that a purge begins."""
        run = PurgeRunRow(uuid7(), time_of(None), limits.jobs_before, limits.effects_before)
        self.memory.purge_runs[run.run_id] = run
        return run.run_id

    async def purge_totals(self, run_id: UUID) -> PurgeTotals:
        """Return what a run has taken."""
        return self.memory.purge_runs[run_id].totals

    async def finish_purge(
        self, run_id: UUID, *, fault: str | None, early: bool, payload: Mapping[str, Any]
    ) -> str | None:
        """Record how a purge ended, and its event."""
        run = self.memory.purge_runs[run_id]
        if run.finished_at is not None:
            return None
        run.finished_at, run.fault = time_of(None), fault
        run.outcome = "succeeded" if fault is None else "failed"
        before = [r for r in self.memory.purge_runs.values() if r.started_at < run.started_at]
        if fault is None:
            event, severity = "jobs.purge.completed", "INFO"
        elif early or (before and before[-1].outcome != "succeeded"):
            event, severity = "jobs.retention.violated", "CRITICAL"
        else:
            return None
        told = {"runId": str(run_id), **run.totals._asdict()} | ({} if fault is None else {"fault": fault})
        self.memory.add_event(event, severity, dict(payload) | told, None, None, run.finished_at)
        return event

    async def purge_state(self) -> PurgeState:
        """Return how the purges of the past went."""
        runs = list(self.memory.purge_runs.values())
        succeeded = [n for n, run in enumerate(runs) if run.outcome == "succeeded"]
        since = runs[succeeded[-1] + 1 :] if succeeded else runs
        failing = [run for run in since if run.finished_at is not None or run is not runs[-1]]
        return PurgeState(
            runs[succeeded[-1]].finished_at if succeeded else None,
            runs[-1].started_at if runs else None,
            len(failing),
            (failing[-1].fault or "the run was killed") if failing else None,
        )

    def _purge_jobs(self, tenant: str, limits: Limits, after: Position | None, limit: int) -> GonePage:
        page = self._old_jobs(tenant, limits, after, limit)
        roots = {row.root_job_id for *_, row in page if self._chain_is_due(row.root_job_id, limits)}
        rows = [row for row in self.memory.of(tenant) if row.root_job_id in roots]
        ids = {row.job_id for row in rows}
        for job_id in ids:
            del self.memory.jobs[job_id]
        events = [e for e in self.memory.events if e["job_id"] in ids and e["published_at"] is not None]
        self.memory.events = [event for event in self.memory.events if event not in events]
        groups: Counter[tuple[str, JobState]] = Counter((row.job_type, row.state) for row in rows)
        return GonePage(
            **_walked(page),
            gone=len(rows),
            bytes=sum(map(_bytes, rows)),
            events=len(events),
            youngest=max(map(_ended, rows), default=None),
            groups=tuple(
                GoneGroup(job_type=job_type, state=state, jobs=n, bytes=0)
                for (job_type, state), n in groups.items()
            ),
        )

    def _purge_effects(
        self, tenant: str | None, limits: Limits, after: Position | None, limit: int
    ) -> GonePage:
        page = self._old_effects(tenant, limits, after, limit)
        gone = [e for *_, e in page if self._effect_is_due(e, limits) and not self._found_by(e)]
        for effect in gone:
            del self.memory.effects[effect.tenant_id, effect.key, effect.effect_type]
        return GonePage(**_walked(page), gone=len(gone))

    def _purge_events(
        self, tenant: str | None, limits: Limits, after: Position | None, limit: int
    ) -> GonePage:
        page = self._old_events(tenant, limits, after, limit)
        gone = [event for *_, event in page if self._event_is_due(event, limits)]
        self.memory.events = [event for event in self.memory.events if event not in gone]
        return GonePage(**_walked(page), gone=len(gone))

    def _old_jobs(
        self, tenant: str, limits: Limits, after: Position | None, limit: int
    ) -> list[tuple[datetime, UUID, Row]]:
        before = require_aware("jobs_before", limits.jobs_before)
        rows = (
            (row.completed_at, row.job_id, row)
            for row in self.memory.of(tenant)
            if row.completed_at is not None and row.completed_at < before
        )
        return _page(rows, after, limit)

    def _old_effects(
        self, tenant: str | None, limits: Limits, after: Position | None, limit: int
    ) -> list[tuple[datetime, UUID, EffectRow]]:
        rows = (
            (effect.created_at, effect.id, effect)
            for effect in self.memory.effects.values()
            if effect.tenant_id == tenant and effect.created_at < limits.effects_before
        )
        return _page(rows, after, limit)

    def _old_events(
        self, tenant: str | None, limits: Limits, after: Position | None, limit: int
    ) -> list[tuple[datetime, UUID, dict[str, Any]]]:
        rows = (
            (event["occurred_at"], event["event_id"], event)
            for event in self.memory.events
            if event["tenant_id"] == tenant
            and event["published_at"] is not None
            and event["occurred_at"] < limits.jobs_before
        )
        return _page(rows, after, limit)

    def _chain_is_due(self, root: UUID, limits: Limits) -> bool:
        chain = [row for row in self.memory.jobs.values() if row.root_job_id == root]
        return all(row.completed_at is not None and row.completed_at < limits.jobs_before for row in chain)

    def _found_by(self, effect: EffectRow) -> list[Row]:
        """Return the chain that made it, and what was submitted anew from that chain."""
        root = effect.root_job_id
        return [row for row in self.memory.jobs.values() if root in (row.root_job_id, row.origin_job_id)]

    def _effect_is_due(self, effect: EffectRow, limits: Limits) -> bool:
        since = effect.confirmed_at or effect.created_at
        return since < limits.effects_before and all(
            row.completed_at is not None and row.completed_at < limits.jobs_before
            for row in self._found_by(effect)
        )

    def _event_is_due(self, event: Mapping[str, Any], limits: Limits) -> bool:
        return event["published_at"] < limits.now and event["job_id"] not in self.memory.jobs


def _page(rows: Iterable[Placed], after: Position | None, limit: int) -> list[Placed]:
    behind = (row for row in rows if after is None or row[:2] > after)
    return sorted(behind, key=lambda row: row[:2])[:limit]


def _walked(page: Sequence[Placed]) -> dict[str, Any]:
    last = page[-1] if page else (None, None, None)
    return {"examined": len(page), "at": last[0], "id": last[1]}


def _ended(row: Row) -> datetime:
    return row.completed_at if row.completed_at is not None else row.updated_at


def _bytes(row: Row) -> int:
    return 350 + len(json.dumps(row.payload)) + len(json.dumps(row.result))
