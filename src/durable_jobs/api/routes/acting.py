"""Retry, cancel, resubmit: what people on duty do with one job."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from durable_jobs.api.access import Access, AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Operator
from durable_jobs.api.models import ListedJob
from durable_jobs.api.routes.reading import JobId
from durable_jobs.errors import NotAllowed
from durable_jobs.jobs import Job
from durable_jobs.states import JobState

router = APIRouter(tags=["operation"])
_LOCATION = {"Location": {"description": "The new job.", "schema": {"type": "string"}}}
_MADE: dict[int | str, dict[str, Any]] = {201: {"headers": _LOCATION}}


@router.post("/jobs/{jobId}/retry", status_code=201, response_model=ListedJob, responses=_MADE)
async def retry_job(job_id: JobId, request: Request, caller: Operator, access: AppAccess) -> Response:
    """Make the one retry of a failed job: a new job with the same payload. Asking again names the same one.

    400 when it is not FAILED or not retryable; at its limit of retries it becomes ABANDONED, also with 400.
    """
    await access.rate_limit.take(caller.tenant)
    store = await access.store()
    bound = _bound(access, await store.get(job_id))
    job = await store.retry(job_id, max_pending=bound, by=caller.subject)
    if job.state is JobState.ABANDONED and job.job_id == job_id:
        raise NotAllowed(
            f"job {job_id} has had its {job.max_retries} retries and is ABANDONED now;"
            f" once the cause is removed: POST /jobs/{job_id}/resubmit"
        )
    return _made(job, request)


@router.post("/jobs/{jobId}/resubmit", status_code=201, response_model=ListedJob, responses=_MADE)
async def resubmit_job(job_id: JobId, request: Request, caller: Operator, access: AppAccess) -> Response:
    """Submit a failed or abandoned job anew, with all its retries, once the cause of its failure is removed."""
    await access.rate_limit.take(caller.tenant)
    store = await access.store()
    known = await store.get(job_id)
    job = await store.resubmit(
        job_id,
        max_pending=_bound(access, known),
        retryable=access.registry.job_type(known.job_type).retryable,
        by=caller.subject,
    )
    return _made(job, request)


@router.post("/jobs/{jobId}/cancel", response_model=ListedJob)
async def cancel_job(job_id: JobId, caller: Operator, access: AppAccess) -> Response:
    """Cancel a waiting or failed job; a running one is asked to stop and is still RUNNING in the answer."""
    job = await (await access.store()).cancel(job_id, by=caller.subject)
    return answer_json(job.as_json(brief=True))


def _bound(access: Access, job: Job) -> int | None:
    return access.registry.queue(job.queue).max_pending


def _made(job: Job, request: Request) -> Response:
    location = f"{request.scope.get('root_path', '')}/jobs/{job.job_id}"
    return answer_json(job.as_json(brief=True), status=201, headers={"Location": location})
