"""GET /jobs/{jobId}: a job as its row tells it, how it stands, and its whole story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response

from durable_jobs.api.access import Access, AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Caller, Reader, Scope
from durable_jobs.api.models import JobChain, JobStatus
from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.dead_letters.story import attempts_left, chain_document, event_document
from durable_jobs.errors import JobNotFound
from durable_jobs.jobs import Job

router = APIRouter(tags=["jobs"])

JobIdText = Annotated[str, Path(alias="jobId", description="Id of the job, a UUID.")]
_ROW_ONLY = ("jobId", "jobType", "state", "progress", "failedReason", "retryCount", "maxRetries", "createdAt")
_TIMES = ("runAt", "startedAt", "completedAt", "cancelRequestedAt")


def job_id_of(text: JobIdText) -> UUID:
    """Return the id; what is no id names no job.

    Raises:
        JobNotFound: it is not a UUID.
    """
    try:
        return UUID(text)
    except ValueError as error:
        raise JobNotFound(f"no job {text[:60]!r}: ids of jobs are UUIDs") from error


JobId = Annotated[UUID, Depends(job_id_of)]


async def visible_job(access: Access, caller: Caller, job_id: UUID) -> Job:
    """Return a job that the caller may see.

    Raises:
        JobNotFound: there is none in the tenant, or it is somebody else's and only one's own are shown.
    """
    job = await (await access.store()).get(job_id)
    if only_own(access, caller) and job.submitted_by != caller.subject:
        raise JobNotFound(f"no job {job_id} in tenant {caller.tenant!r}")
    return job


def only_own(access: Access, caller: Caller) -> bool:
    """Tell whether the caller may see its own jobs only."""
    return access.settings.api_own_jobs_only and Scope.OPERATE not in caller.scopes


@router.get("/jobs/{jobId}", response_model=Job)
async def get_job(job_id: JobId, caller: Reader, access: AppAccess) -> Response:
    """Return one job: state, payload, result, reason of a failure, times and lineage."""
    return answer_json((await visible_job(access, caller, job_id)).as_json())


@router.get("/jobs/{jobId}/status", response_model=JobStatus)
async def get_status(job_id: JobId, caller: Reader, access: AppAccess) -> Response:
    """Return how a job stands, what was told of it, and which job of its chain has the say now."""
    job = await visible_job(access, caller, job_id)
    store = await access.store()
    chain = await store.chain(job_id)
    return answer_json(_status(job, chain, await store.chain_events([job_id])))


@router.get("/jobs/{jobId}/chain", response_model=JobChain)
async def get_chain(job_id: JobId, caller: Reader, access: AppAccess) -> Response:
    """Return the whole story of a job: its retries, what was resubmitted from or as it, and what remains."""
    await visible_job(access, caller, job_id)
    store = await access.store()
    chain = await store.chain(job_id)
    return answer_json(chain_document(chain, await store.chain_events([job.job_id for job in chain])))


def _status(job: Job, chain: Sequence[Job], events: Sequence[ChainEvent]) -> dict[str, Any]:
    row = job.as_json(brief=True)
    attempts = [other for other in chain if other.root_job_id == job.root_job_id]
    current = max(attempts, key=lambda other: other.retry_count, default=job)
    return {
        **{name: row[name] for name in (*_ROW_ONLY, *_TIMES)},
        "terminal": job.is_terminal,
        "attemptsLeft": attempts_left(job),
        "lineage": {
            **{name: row[name] for name in ("rootJobId", "parentJobId", "retryChildId", "replayOf")},
            "currentJobId": str(current.job_id),
        },
        "history": [event_document(event) for event in events],
    }
