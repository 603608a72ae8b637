"""The story of a job as people and programs read it: attempts, events, what remains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.jobs import Job
from durable_jobs.moments import for_programs
from durable_jobs.states import JobState


def chain_document(jobs: Sequence[Job], events: Sequence[ChainEvent]) -> dict[str, Any]:
    """Return a chain as JSON shows it: every attempt, what was told of it, what remains."""
    last = jobs[-1]
    return {
        "jobs": [job.as_json(brief=True) for job in jobs],
        "events": [event_document(event) for event in events],
        "attemptsLeft": attempts_left(last),
        "remains": what_remains(last),
    }


def event_document(event: ChainEvent) -> dict[str, Any]:
    """Return what was told of a job as JSON shows it."""
    return {
        "jobId": str(event.job_id),
        "event": event.event,
        "severity": event.severity,
        "occurredAt": for_programs(event.occurred_at),
        "by": event.by,
    }


def attempts_left(job: Job) -> int:
    """Return how many retries a job may still have."""
    live = job.state in (JobState.PENDING, JobState.RUNNING)
    may = live or (job.state is JobState.FAILED and job.retryable)
    return max(0, job.max_retries - job.retry_count) if may else 0


def what_remains(job: Job) -> str:
    """Say what can still come of a job."""
    match job.state:
        case JobState.PENDING | JobState.RUNNING:
            return f"{job.state}; if it fails, {attempts_left(job)} retries remain"
        case JobState.FAILED if job.retryable and attempts_left(job):
            left = attempts_left(job)
            return f"FAILED; {left} retries remain, the next comes with jobs-dlq-retry or by `durable-jobs retry`"
        case JobState.FAILED if job.retryable:
            return "FAILED; no retry remains, the next pass of jobs-dlq-retry gives it up"
        case JobState.FAILED | JobState.ABANDONED:
            return f"{job.state}; nothing comes by itself, once the cause is fixed: durable-jobs resubmit {job.job_id}"
        case _:
            return f"{job.state}; nothing remains to be done"
