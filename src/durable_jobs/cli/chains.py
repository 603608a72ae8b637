"""`get --chain`: the whole story of a job: every attempt, why it failed, who retried it, what remains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from durable_jobs.cli.output import answer, answer_json, printable, table
from durable_jobs.cli.running import with_store
from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.dead_letters.story import chain_document, what_remains
from durable_jobs.jobs import Job
from durable_jobs.moments import for_people
from durable_jobs.runtime import Runtime
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
