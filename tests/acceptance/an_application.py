"""An application of its own: registers a job in a stack that it knows from its environment only.

Usage: an_application.py archive DOCUMENT STORE, or an_application.py list; prints jobs as JSON.
"""

import asyncio
import json
import sys
from uuid import UUID

from durable_jobs import Job, job_tenant_scope, register_job
from durable_jobs.runtime import current_runtime
from durable_jobs.stores.protocols import JobFilter


async def archive(document: str, store: str) -> list[Job]:
    job = await register_job("DOCUMENT_ARCHIVE", {"source": document, "store": store})
    return [await ended(job.job_id)]


async def ended(job_id: UUID) -> Job:
    store = await current_runtime().store()
    async with asyncio.timeout(60):
        while (job := await store.get(job_id)).completed_at is None:  # noqa: ASYNC110 -- another process
            await asyncio.sleep(0.05)
    return job


async def everything() -> list[Job]:
    store = await current_runtime().store()
    return (await store.list_jobs(JobFilter(), limit=1000)).jobs


async def main(command: str, *arguments: str) -> None:
    with job_tenant_scope("default"):
        jobs = await (archive(*arguments) if command == "archive" else everything())
    await current_runtime().close()
    sys.stdout.write(json.dumps([job.as_json(brief=True) for job in jobs]))


asyncio.run(main(*sys.argv[1:]))
