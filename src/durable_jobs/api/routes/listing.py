"""GET /jobs and GET /jobs/failed: pages that stay right while jobs come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response

from durable_jobs.api.access import Access, AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Caller, Reader
from durable_jobs.api.cursors import CursorSeal
from durable_jobs.api.models import JobList
from durable_jobs.api.questions import FailedQuestion, JobsQuestion, ListQuestion
from durable_jobs.api.routes.reading import only_own
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Cursor, JobFilter, Page

router = APIRouter(tags=["jobs"])

List = Callable[..., Awaitable[Page]]


@router.get("/jobs", response_model=JobList)
async def list_jobs(
    question: Annotated[JobsQuestion, Query()],
    caller: Reader,
    access: AppAccess,
) -> Response:
    """List jobs, newest first, without payloads and results."""
    store = await access.store()
    wanted = JobFilter(
        states=tuple(question.state),
        job_type=question.type,
        queue=question.queue,
        since=await question.since.moment(store) if question.since else None,
        submitted_by=caller.subject if only_own(access, caller) else None,
    )
    return await _page(store.list_jobs, wanted, question, caller, access)


@router.get("/jobs/failed", response_model=JobList)
async def list_failed(
    question: Annotated[FailedQuestion, Query()],
    caller: Reader,
    access: AppAccess,
) -> Response:
    """List failed jobs, those that failed last first; with `retryable=true`, those that can be retried now."""
    store = await access.store()
    wanted = JobFilter(
        states=(JobState.FAILED,),
        job_type=question.job_type,
        since=await question.since.moment(store) if question.since else None,
        retryable=question.retryable,
        submitted_by=caller.subject if only_own(access, caller) else None,
    )
    return await _page(store.list_failed, wanted, question, caller, access)


async def _page(
    read: List, wanted: JobFilter, question: ListQuestion, caller: Caller, access: Access
) -> Response:
    seal = CursorSeal(await access.cursor_key(), caller.tenant, [read.__name__, question.asked()])
    after: Cursor | None = seal.read(question.cursor)
    page: Page = await read(wanted, after=after, limit=question.limit)
    jobs = [job.as_json(brief=True) for job in page.jobs]
    return answer_json({"jobs": jobs, "nextCursor": seal.write(page.next)})
