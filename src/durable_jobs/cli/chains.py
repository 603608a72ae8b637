"""`get --chain`: the whole story of a job: every attempt, why it failed, who retried it, what remains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from durable_jobs.cli.output import answer, answer_json, printable, table
from durable_jobs.cli.running import with_store
from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.jobs import Job
from durable_jobs.moments import for_people, for_programs
from durable_jobs.runtime import Runtime
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore

_HEADS = ("JOB ID", "ATTEMPT", "STATE", "ENDED", "WENT ON BY", "REASON")
_ACTS = ("jobs.job.retried", "jobs.job.resubmitted", "jobs.job.abandoned", "jobs.job.cancelled")


def show_chain(job_id: UUID, tenant: str, *, as_json: bool) -> None:
    """Print the chain of a job and what remains of its retries."""

    async def read(_: Runtime, store: PgJobsStore) -> tuple[list[Job], list[ChainEvent]]:
        jobs = await store.chain(job_id)
        return jobs, await store.chain_events([job.job_id for job in jobs])

    jobs, events = with_store(tenant, read)
    if as_json:
        answer_json(_document(jobs, events))
        return
    answer(table(_HEADS, [_row(job, events) for job in jobs]))
    answer(f"\n{_remains(jobs[-1])}")


def _document(jobs: Sequence[Job], events: Sequence[ChainEvent]) -> dict[str, Any]:
    last = jobs[-1]
    return {
        "jobs": [job.as_json(brief=True) for job in jobs],
        "events": [
            {
                "jobId": str(event.job_id),
                "event": event.event,
                "severity": event.severity,
                "occurredAt": for_programs(event.occurred_at),
                "by": event.by,
            }
            for event in events
        ],
        "attemptsLeft": _left(last),
        "remains": _remains(last),
    }


def _row(job: Job, events: Sequence[ChainEvent]) -> tuple[Any, ...]:
    ended = "" if job.completed_at is None else for_people(job.completed_at)
    acts = [event for event in events if event.job_id == job.job_id and event.event in _ACTS]
    by = ", ".join(f"{event.event.rpartition('.')[2]} by {event.by or 'the system'}" for event in acts)
    attempt = f"{job.retry_count + 1} of {job.max_retries + 1}"
    return (job.job_id, attempt, job.state, ended, by, printable(job.failed_reason)[:200])


def _left(job: Job) -> int:
    live = job.state in (JobState.PENDING, JobState.RUNNING)
    may = live or (job.state is JobState.FAILED and job.retryable)
    return max(0, job.max_retries - job.retry_count) if may else 0


def _remains(job: Job) -> str:
    match job.state:
        case JobState.PENDING | JobState.RUNNING:
            return f"{job.state}; if it fails, {_left(job)} retries remain"
        case JobState.FAILED if job.retryable and _left(job):
            return f"FAILED; {_left(job)} retries remain, the next comes with jobs-dlq-retry or by `durable-jobs retry`"
        case JobState.FAILED if job.retryable:
            return "FAILED; no retry remains, the next pass of jobs-dlq-retry gives it up"
        case JobState.FAILED | JobState.ABANDONED:
            return f"{job.state}; nothing comes by itself, once the cause is fixed: durable-jobs resubmit {job.job_id}"
        case _:
            return f"{job.state}; nothing remains to be done"
