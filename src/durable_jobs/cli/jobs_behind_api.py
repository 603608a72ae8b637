"""Jobs as commands see them, behind an API; the tenant and the user are those of the token."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from durable_jobs.cli.where import Jobs, Kind, Names, PurgeRequest, SubmitRequest
from durable_jobs.client import AsyncJobsClient
from durable_jobs.client.clients import TOKEN_VARIABLE
from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.errors import BadInput, InvalidPayload, NotAllowed
from durable_jobs.jobs import Job
from durable_jobs.runtime import current_runtime
from durable_jobs.stores.protocols import JobFilter, Paused
from durable_jobs.written_times import Since


@asynccontextmanager
async def jobs_behind_api(url: str) -> AsyncIterator[Jobs]:
    """Use the API with the token in DURABLE_JOBS_TOKEN; it is waited for as long as a database would be."""
    async with client_of(url) as client:
        yield JobsBehindApi(client)


def client_of(url: str) -> AsyncJobsClient:
    """Return a client of the API; use it by `async with`."""
    patience = current_runtime().settings.database_timeout
    return AsyncJobsClient(url, os.environ.get(TOKEN_VARIABLE) or None, patience=patience)


class JobsBehindApi:
    """See `Jobs`."""

    def __init__(self, client: AsyncJobsClient) -> None:
        """Use a client."""
        self._client = client

    async def submit(self, request: SubmitRequest) -> UUID:
        """Have the API validate and register a job."""
        try:
            data = json.loads(request.document)
        except ValueError as error:
            raise InvalidPayload(f"the request is not JSON: {error}") from error
        submitted = await self._client.submit(
            request.job_type,
            data,
            idempotency_key=request.idempotency_key,
            correlation_id=request.correlation_id,
            priority=request.priority,
            run_at=request.run_at,
        )
        return submitted.job_id

    async def get(self, job_id: UUID) -> Job:
        """Return a job."""
        return await self._client.get(job_id)

    async def chain(self, job_id: UUID) -> tuple[list[Job], list[ChainEvent]]:
        """Return every job of a chain, and what was told of them."""
        story = await self._client.chain(job_id)
        events = [
            ChainEvent(told.job_id, told.event, told.severity, told.occurred_at, told.by)
            for told in story.events
        ]
        return list(story.jobs), events

    async def page(
        self, wanted: JobFilter, lately: Since, cursor: str | None, limit: int
    ) -> tuple[Sequence[Job], str | None]:
        """Return a page of jobs."""
        page = await self._client.list_jobs(
            states=wanted.states,
            job_type=wanted.job_type,
            queue=wanted.queue,
            since=lately.at if lately.ago is None else lately.ago,
            limit=limit,
            cursor=cursor,
        )
        return page.jobs, page.next_cursor

    async def cancel(self, job_id: UUID) -> Job:
        """Cancel a job, or ask it to stop."""
        return await self._whole(await self._client.cancel(job_id))

    async def retry(self, job_id: UUID) -> Job:
        """Make the retry of a failed job."""
        try:
            return await self._whole(await self._client.retry(job_id))
        except NotAllowed as error:
            # The way out is the same, and has another name here.
            here = str(error).replace(f"POST /jobs/{job_id}/resubmit", f"durable-jobs resubmit {job_id}")
            raise NotAllowed(here) from error

    async def resubmit(self, job_id: UUID) -> Job:
        """Submit a job anew."""
        return await self._whole(await self._client.resubmit(job_id))

    async def names(self) -> Names:
        """Return what the API's modules declare."""
        config = await self._client.config()
        return Names({q["name"] for q in config.queues}, {t["name"] for t in config.job_types})

    async def paused(self) -> list[Paused]:
        """Return what is held back."""
        held = (await self._client.stats()).paused
        return [Paused(one.kind, one.name, one.since, one.by) for one in held if one.since is not None]

    async def pause(self, kind: Kind, name: str) -> Paused:
        """Hold a queue or a type back."""
        one = await self._client.pause(kind, name)
        if one.since is None:
            raise NotAllowed(f"{kind} {name!r} was resumed by somebody else meanwhile")
        return Paused(one.kind, one.name, one.since, one.by)

    async def resume(self, kind: Kind, name: str) -> None:
        """Let a queue or a type go on."""
        await self._client.resume(kind, name)

    async def workers(self) -> list[dict[str, Any]]:
        """Return the executors."""
        found = await self._client.workers()
        return [worker.model_dump(mode="json", by_alias=True) for worker in found.workers]

    async def config(self) -> dict[str, Any]:
        """Return the API's configuration; its settings are for tokens with the scope operate."""
        found = (await self._client.config()).model_dump(mode="json", by_alias=True)
        return {name: value for name, value in found.items() if value is not None}

    async def purgeable(
        self, jobs: timedelta, effects: timedelta | None, tenants: Sequence[str] | None
    ) -> dict[str, Any]:
        """Return what a purge of the token's tenant would take."""
        if effects is not None or tenants is not None:
            option = "--tenant" if effects is None else "--effects-older-than"
            raise BadInput(f"{option} does not work through an API: leave it out")
        found = await self._client.purgeable(older_than=jobs)
        return found.model_dump(mode="json", by_alias=True)

    async def purge(self, request: PurgeRequest) -> dict[str, Any]:
        """Purge jobs of the token's tenant, as `purge --tenant` does."""
        options = {
            "--effects-older-than": request.effects,
            "--redis-older-than": request.redis,
            "--redis-prefix": request.redis_prefix,
            "--time-budget": request.time_budget,
            "--tenant": request.tenants,
        }
        for option, given in options.items():
            if given is not None:
                raise BadInput(f"{option} does not work through an API: leave it out")
        found = await self._client.purge(older_than=request.jobs, dry_run=request.dry_run)
        return found.model_dump(mode="json", by_alias=True, exclude={"target"}, exclude_none=True)

    async def _whole(self, job: Job) -> Job:
        """Return a job with its payload, as beside the database."""
        return await self._client.get(job.job_id)
