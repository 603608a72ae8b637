"""Dead letters in Postgres; see `LetterStore`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from uuid_utils.compat import uuid7

from durable_jobs.dead_letters.store import (
    EVERY,
    ChainEvent,
    LetterCount,
    LetterFilter,
    LockedLetter,
    Retried,
    Verdict,
)
from durable_jobs.errors import JobNotFound
from durable_jobs.jobs import Job
from durable_jobs.states import JobState
from durable_jobs.stores.postgres.database import Database
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import clean

# A list of dead letters is looked at, not executed: the big columns stay where they are.
_BRIEF = (
    f"SELECT {', '.join(name for name in Job.model_fields if name not in ('payload', 'result'))} FROM {{}}"  # noqa: S608 -- names of columns
)
_FIND_FAILED = _BRIEF.format("find_failed(%(tenant)s, %(filter)s::jsonb, %(limit)s)")
_FIND_ENDED = _BRIEF.format("find_ended(%(tenant)s, %(states)s::text[], %(filter)s::jsonb, %(limit)s)")
_COUNT = (
    "SELECT job_type, letters, at_limit, oldest_at, failed, ended"
    " FROM count_letters(%(tenant)s, %(since)s, %(now)s)"
)
_LOCK = (
    "SELECT job_id, job_type, queue, payload, payload_version, retry_count"
    " FROM lock_failed(%s, %s::jsonb, %s::text[], %s::uuid[], %s)"
)
_RETRY = "SELECT job_id, outcome, child_id FROM retry_failed(%s, %s::jsonb, %s::jsonb, %s, %s, %s)"
_ABANDON = (
    "SELECT job_type, jobs FROM abandon_failed("
    "%(tenant)s, %(filter)s::jsonb, %(limit)s, %(by)s, %(each)s, %(now)s)"
)


class PgLetters:
    """Finds, counts, retries and abandons what failed."""

    _db: Database

    async def find_failed(
        self, tenant_id: str, wanted: LetterFilter = EVERY, *, limit: int = 50
    ) -> list[Job]:
        """Return dead letters, oldest first."""
        return await self._jobs(_FIND_FAILED, tenant=tenant_id, filter=_text(wanted), limit=limit)

    async def find_ended(
        self, tenant_id: str, states: Sequence[JobState], wanted: LetterFilter = EVERY, *, limit: int = 50
    ) -> list[Job]:
        """Return jobs in these states that nobody has resubmitted."""
        names = [str(state) for state in states]
        return await self._jobs(
            _FIND_ENDED, tenant=tenant_id, states=names, filter=_text(wanted), limit=limit
        )

    async def count_letters(
        self, tenant_id: str, *, since: timedelta, now: datetime | None = None
    ) -> list[LetterCount]:
        """Return the dead letters by type, and how executions ended lately."""
        rows = await self._db.fetch(_COUNT, {"tenant": tenant_id, "since": since, "now": now})
        return [LetterCount._make(row) for row in rows]

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
        """Lock, decide and act in one transaction."""

        async def work(connection: psycopg.AsyncConnection[Any]) -> list[Retried]:
            asked = [tenant_id, _text(wanted), list(full), list(skip), limit]
            locked = await (await connection.execute(_LOCK, asked)).fetchall()
            letters = {row[0]: LockedLetter._make(row) for row in locked}
            if not letters:
                return []
            verdicts = {job_id: decide(letter) for job_id, letter in letters.items()}
            decisions = json.dumps([_decision(n, *item) for n, item in enumerate(verdicts.items())])
            acted = await connection.execute(
                _RETRY, [tenant_id, decisions, json.dumps(dict(bounds)), by, each, now]
            )
            return [
                Retried(letters[job_id], outcome, child_id, verdicts[job_id].refuse)
                for job_id, outcome, child_id in await acted.fetchall()
            ]

        return await self._db.in_transaction(work)

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
        rows = await self._db.fetch(
            _ABANDON,
            {
                "tenant": tenant_id,
                "filter": _text(wanted),
                "limit": limit,
                "by": by,
                "each": each,
                "now": now,
            },
        )
        return dict(rows)

    async def chain(self, job_id: UUID) -> list[Job]:
        """Return the chain of a job."""
        tenant = required_tenant()
        jobs = await self._jobs(
            _BRIEF.format("job_chain(%(tenant)s, %(job_id)s)"), tenant=tenant, job_id=job_id
        )
        if not jobs:
            raise JobNotFound(f"no job {job_id} in tenant {tenant!r}")
        return jobs

    async def chain_events(self, job_ids: Sequence[UUID]) -> list[ChainEvent]:
        """Return what was told of these jobs."""
        rows = await self._db.fetch(
            "SELECT job_id, event, severity, occurred_at, by FROM chain_events(%(tenant)s, %(ids)s::uuid[])",
            {"tenant": required_tenant(), "ids": list(job_ids)},
        )
        return [ChainEvent._make(row) for row in rows]

    async def _jobs(self, statement: str, **params: Any) -> list[Job]:
        rows = await self._db.fetch(statement, params, row_factory=dict_row)
        return [Job.model_validate(row) for row in rows]


def _text(wanted: LetterFilter) -> str:
    return json.dumps(wanted.as_json())


def _decision(n: int, job_id: UUID, verdict: Verdict) -> dict[str, Any]:
    return {
        "n": n,
        "job_id": str(job_id),
        "child_id": str(uuid7()),
        "refuse": None if verdict.refuse is None else clean(verdict.refuse, 900),
        "delay": f"{verdict.delay.total_seconds()} s",
    }
