"""Dead letters in memory; see `LetterStore`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durable_jobs.dead_letters.store import (
    EVERY,
    ChainEvent,
    LetterCount,
    LetterFilter,
    LockedLetter,
    Retried,
    Verdict,
)
from durable_jobs.errors import QueueFull
from durable_jobs.jobs import Job
from durable_jobs.states import JobState
from durable_jobs.stores.memory.operator import MemoryOperator
from durable_jobs.stores.memory.rows import Row, time_of
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import clean


class MemoryLetters(MemoryOperator):
    """Finds, counts, retries and abandons what failed."""

    async def find_failed(
        self, tenant_id: str, wanted: LetterFilter = EVERY, *, limit: int = 50
    ) -> list[Job]:
        """Return dead letters, oldest first."""
        return [row.job(brief=True) for row in self._letters(tenant_id, wanted)[:limit]]

    async def find_ended(
        self, tenant_id: str, states: Sequence[JobState], wanted: LetterFilter = EVERY, *, limit: int = 50
    ) -> list[Job]:
        """Return jobs in these states that nobody has resubmitted."""
        return [row.job(brief=True) for row in self._found(tenant_id, states, wanted)[:limit]]

    async def count_letters(
        self, tenant_id: str, *, since: timedelta, now: datetime | None = None
    ) -> list[LetterCount]:
        """Return the dead letters by type, and how executions ended lately."""
        begin = time_of(now) - since
        letters = self._letters(tenant_id, EVERY)
        ended = [
            row
            for row in self.memory.of(tenant_id)
            if row.completed_at is not None
            and row.completed_at > begin
            and row.state is not JobState.CANCELLED
        ]
        return [
            _count(job_type, letters, ended) for job_type in sorted({row.job_type for row in letters + ended})
        ]

    async def retry_failed(
        self,
        tenant_id: str,
        decide: Callable[[LockedLetter], Verdict],
        bounds: Mapping[str, int | None],
        *,
        wanted: LetterFilter = EVERY,
        full: Collection[str] = (),
        skip: Collection[UUID] = (),
        limit: int = 50,
        by: str | None = None,
        each: int = 20,
        now: datetime | None = None,
    ) -> list[Retried]:
        """Decide and act."""
        at = time_of(now)
        rows = [
            row
            for row in self._letters(tenant_id, wanted)
            if row.retry_count < row.max_retries and row.queue not in full and row.job_id not in skip
        ][:limit]
        verdicts = [decide(_locked(row)) for row in rows]
        told: defaultdict[tuple[str, str, str], list[tuple[Row, dict[str, Any]]]] = defaultdict(list)
        retried = [
            self._act(row, verdict, bounds, at, told) for row, verdict in zip(rows, verdicts, strict=True)
        ]
        for (event, severity, _), entries in told.items():
            self._tell_all(event, severity, entries, by, each, at)
        for row, (_, outcome, child_id, _) in zip(rows, retried, strict=True):
            if outcome == "retried":
                row.state, row.retry_child_id, row.updated_at = JobState.RETRIED, child_id, at
        return retried

    async def abandon_failed(
        self,
        tenant_id: str,
        *,
        wanted: LetterFilter = EVERY,
        limit: int = 10_000,
        by: str | None = None,
        each: int = 20,
        now: datetime | None = None,
    ) -> dict[str, int]:
        """Give up what has had all its retries."""
        at = time_of(now)
        rows = [row for row in self._letters(tenant_id, wanted) if row.retry_count >= row.max_retries][:limit]
        for row in rows:
            row.state, row.updated_at = JobState.ABANDONED, at
        self._tell_all("abandoned", "CRITICAL", [(row, {}) for row in rows], by, each, at)
        return dict(Counter(row.job_type for row in rows))

    async def chain(self, job_id: UUID) -> list[Job]:
        """Return the chain of a job."""
        story = {self.memory.mine(job_id).root_job_id}
        rows = list(self.memory.of(required_tenant()))
        while True:
            ids = {row.job_id for row in rows if row.root_job_id in story}
            olden = {
                self.memory.jobs[row.replay_of].root_job_id
                for row in rows
                if row.job_id in ids and row.replay_of
            }
            newer = {row.root_job_id for row in rows if row.replay_of in ids}
            if olden | newer <= story:
                break
            story |= olden | newer
        chain = [row for row in rows if row.root_job_id in story]
        chain.sort(key=lambda row: (row.created_at, row.retry_count, row.job_id))
        return [row.job(brief=True) for row in chain]

    async def chain_events(self, job_ids: Sequence[UUID]) -> list[ChainEvent]:
        """Return what was told of these jobs."""
        return [
            ChainEvent(e["job_id"], e["event"], e["severity"], e["occurred_at"], e["payload"].get("by"))
            for e in self.memory.events
            if e["job_id"] in job_ids and e["tenant_id"] == required_tenant()
        ]

    def _letters(self, tenant_id: str, wanted: LetterFilter) -> list[Row]:
        return [row for row in self._found(tenant_id, [JobState.FAILED], wanted) if row.retryable]

    def _found(self, tenant_id: str, states: Sequence[JobState], wanted: LetterFilter) -> list[Row]:
        rows = [
            row
            for row in self.memory.of(tenant_id)
            if row.state in states and _fits(row, wanted) and not self._resubmissions(row)
        ]
        return sorted(rows, key=lambda row: (row.completed_at, row.job_id))

    def _act(
        self,
        row: Row,
        verdict: Verdict,
        bounds: Mapping[str, int | None],
        at: datetime,
        told: defaultdict[tuple[str, str, str], list[tuple[Row, dict[str, Any]]]],
    ) -> Retried:
        letter = _locked(row)
        if verdict.refuse is not None:
            why = clean(verdict.refuse, 900)
            row.retryable, row.updated_at = False, at
            row.failed_reason = f"{(row.failed_reason or '')[:3000]} (not retried: {why})"
            told["failed", "CRITICAL", ""].append((row, {}))
            return Retried(letter, "refused", None, verdict.refuse)
        try:
            child = self._again(row, bounds.get(row.queue), at)
        except QueueFull:
            return Retried(letter, "full", None, None)
        child.run_at = at + verdict.delay
        self._make_child_of(row, child)
        told["retried", "INFO", row.queue].append((row, {"retryChildId": str(child.job_id)}))
        return Retried(letter, "retried", child.job_id, None)

    def _tell_all(
        self,
        event: str,
        severity: str,
        entries: Sequence[tuple[Row, dict[str, Any]]],
        by: str | None,
        each: int,
        at: datetime,
    ) -> None:
        if len(entries) <= each:
            for row, more in entries:
                self.memory.tell(event, severity, row, at, **more, by=by)
            return
        rows = [row for row, _ in entries]
        payload = {
            "jobs": len(rows),
            "by": by,
            "jobTypes": dict(Counter(row.job_type for row in rows)),
            "firstJobIds": [str(row.job_id) for row in rows[:100]],
        }
        self.memory.add_event(f"jobs.job.{event}", severity, payload, rows[0].tenant_id, None, at)


def _fits(row: Row, wanted: LetterFilter) -> bool:
    return (
        (wanted.job_ids is None or row.job_id in wanted.job_ids)
        and wanted.job_type in (None, row.job_type)
        and (wanted.since is None or (row.completed_at is not None and row.completed_at >= wanted.since))
        and _like(row.failed_reason or "", wanted.as_json().get("reason_like"))
    )


def _like(text: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    signs = {"%": ".*", "_": "."}
    return bool(
        re.fullmatch("".join(signs.get(c, re.escape(c)) for c in pattern), text, re.IGNORECASE | re.DOTALL)
    )


def _locked(row: Row) -> LockedLetter:
    return LockedLetter(
        row.job_id, row.job_type, row.queue, row.payload_text(), row.payload_version, row.retry_count
    )


def _count(job_type: str, letters: Iterable[Row], ended: Iterable[Row]) -> LetterCount:
    mine = [row for row in letters if row.job_type == job_type]
    lately = [row for row in ended if row.job_type == job_type]
    return LetterCount(
        job_type,
        len(mine),
        sum(row.retry_count >= row.max_retries for row in mine),
        min((row.completed_at for row in mine if row.completed_at), default=None),
        sum(row.state is not JobState.SUCCEEDED for row in lately),
        len(lately),
    )
