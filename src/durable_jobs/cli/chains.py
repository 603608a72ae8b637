"""`get --chain`: the whole story of a job: every attempt, why it failed, who retried it, what remains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from durable_jobs.cli.output import answer, answer_json, printable, table
from durable_jobs.cli.where import Jobs, with_jobs
from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.dead_letters.story import chain_document, what_remains
from durable_jobs.jobs import Job
from durable_jobs.moments import for_people

_HEADS = ("JOB ID", "ATTEMPT", "STATE", "ENDED", "WENT ON BY", "REASON")
_ACTS = ("jobs.job.retried", "jobs.job.resubmitted", "jobs.job.abandoned", "jobs.job.cancelled")


def show_chain(job_id: UUID, tenant: str, *, as_json: bool) -> None:
    """Print the chain of a job and what remains of its retries."""

    async def read(jobs: Jobs) -> tuple[list[Job], list[ChainEvent]]:
        return await jobs.chain(job_id)

    jobs, events = with_jobs(tenant, read)
    if as_json:
        answer_json(chain_document(jobs, events))
        return
    answer(table(_HEADS, [_row(job, events) for job in jobs]))
    answer(f"\n{what_remains(jobs[-1])}")


def _row(job: Job, events: Sequence[ChainEvent]) -> tuple[Any, ...]:
    ended = "" if job.completed_at is None else for_people(job.completed_at)
    acts = [event for event in events if event.job_id == job.job_id and event.event in _ACTS]
    by = ", ".join(f"{event.event.rpartition('.')[2]} by {event.by or 'the system'}" for event in acts)
    attempt = f"{job.retry_count + 1} of {job.max_retries + 1}"
    return (job.job_id, attempt, job.state, ended, by, printable(job.failed_reason)[:200])
