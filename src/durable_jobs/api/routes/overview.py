"""The figures of a tenant, and what is configured."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Response

from durable_jobs.api.access import AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Reader, Scope
from durable_jobs.api.models import Configuration, Stats
from durable_jobs.api.routes.pausing import paused_document
from durable_jobs.configuration import describe
from durable_jobs.dead_letters.store import LetterCount
from durable_jobs.moments import for_programs
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import QueueCount

router = APIRouter(tags=["operation"])

LATELY = timedelta(hours=1)


@router.get("/jobs/stats", response_model=Stats)
async def stats(caller: Reader, access: AppAccess) -> Response:
    """Count the tenant's jobs that wait, run or are dead letters, and how executions ended in the last hour."""
    store = await access.store()
    counts = await store.tenant_counts()
    letters = await store.count_letters(caller.tenant, since=LATELY)
    paused = await store.paused()
    operates = Scope.OPERATE in caller.scopes
    return answer_json(
        {
            "tenantId": caller.tenant,
            "pending": _total(counts, JobState.PENDING),
            "running": _total(counts, JobState.RUNNING),
            "deadLetters": sum(letter.letters for letter in letters),
            "oldestPendingSeconds": _oldest(counts),
            "counts": [_count(count) for count in counts],
            "lastHour": [_lately(letter) for letter in letters],
            "paused": [paused_document(one, told_by=operates) for one in paused],
        }
    )


@router.get("/jobs/config", response_model=Configuration)
async def config(caller: Reader, access: AppAccess) -> Response:
    """Return queues, job types and policies; with the scope `operate` also the settings, without secrets."""
    document = describe(access.settings, access.registry)
    if Scope.OPERATE not in caller.scopes:
        del document["settings"]
    return answer_json(document)


def _total(counts: Sequence[QueueCount], state: JobState) -> int:
    return sum(count.jobs for count in counts if count.state is state)


def _oldest(counts: Sequence[QueueCount]) -> float | None:
    waiting = [c.oldest_run_at for c in counts if c.state is JobState.PENDING and c.oldest_run_at is not None]
    waited = [(datetime.now(UTC) - moment).total_seconds() for moment in waiting]
    return max((seconds for seconds in waited if seconds >= 0), default=None)


def _count(count: QueueCount) -> dict[str, Any]:
    return {
        "queue": count.queue,
        "jobType": count.job_type,
        "state": str(count.state),
        "jobs": count.jobs,
        "oldestRunAt": None if count.oldest_run_at is None else for_programs(count.oldest_run_at),
    }


def _lately(letter: LetterCount) -> dict[str, Any]:
    return {
        "jobType": letter.job_type,
        "ended": letter.ended,
        "failed": letter.failed,
        "deadLetters": letter.letters,
        "atLimit": letter.at_limit,
        "oldestDeadLetterAt": None if letter.oldest_at is None else for_programs(letter.oldest_at),
    }
