"""Resubmits in bulk what failed or was abandoned, once the cause is fixed: new roots, the old rows untouched.

A job that somebody has resubmitted is left out, so doing it twice doubles nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from durable_jobs.dead_letters.store import LetterFilter, LetterStore
from durable_jobs.errors import NotAllowed, QueueFull, UnknownJobType, UnknownQueue
from durable_jobs.jobs import Job
from durable_jobs.registry import Registry
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import JobsOperator
from durable_jobs.tenants import job_tenant_scope

ENDED = (JobState.ABANDONED, JobState.FAILED)
PAGE = 500


class ResubmitStore(LetterStore, JobsOperator, Protocol):
    """A store that finds and resubmits."""


@dataclass
class Resubmitted:
    """What a bulk resubmission did."""

    new: list[Job] = field(default_factory=list)
    refused: dict[UUID, str] = field(default_factory=dict)
    """Why, by job."""
    full: set[str] = field(default_factory=set)
    """Queues without room; ask again when jobs have been executed."""


async def resubmit_all(
    store: ResubmitStore, registry: Registry, tenant: str, wanted: LetterFilter, *, by: str | None
) -> Resubmitted:
    """Resubmit all jobs of a tenant that fit, oldest first, as far as their queues have room.

    Raises:
        StoreUnavailable: the database does not answer; asking again goes on where it stopped.
    """
    done = Resubmitted()
    while True:
        # Each one resubmitted leaves the list; those left alone stay at its head.
        asked = PAGE + len(done.refused)
        jobs = [
            j
            for j in await store.find_ended(tenant, ENDED, wanted, limit=asked)
            if j.job_id not in done.refused
        ]
        for job in jobs:
            if job.queue in done.full:
                done.refused[job.job_id] = f"queue {job.queue!r} is full"
            else:
                await _resubmit(store, registry, tenant, job, done, by)
        if not jobs:
            return done


async def _resubmit(
    store: ResubmitStore, registry: Registry, tenant: str, job: Job, done: Resubmitted, by: str | None
) -> None:
    try:
        retryable = registry.job_type(job.job_type).retryable
        bound = registry.queue(job.queue).max_pending
        with job_tenant_scope(tenant):
            done.new.append(await store.resubmit(job.job_id, max_pending=bound, retryable=retryable, by=by))
    except QueueFull as error:
        done.full.add(job.queue)
        done.refused[job.job_id] = str(error)
    except (UnknownJobType, UnknownQueue, NotAllowed) as error:
        done.refused[job.job_id] = str(error)
