"""The demo's dead letter: a document that comes too late.

Its job fails and stays failed. Once the document is there, a pass of jobs-dlq-retry makes a new job of it, which
succeeds, and Prefect shows the event. The pass is asked for at once and not awaited for up to 15 minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from durable_jobs.deployments.demo_prefect import DemoPrefect
from durable_jobs.documents.payload import ArchiveDocument
from durable_jobs.jobs import Job
from durable_jobs.registration import register_job
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore

LATE = "arrives-late.txt"
RETRY = "jobs-dlq-retry/every-15-minutes"
RETRIED = "jobs.job.retried"
FOLLOW = 0.25

Found = TypeVar("Found")


@dataclass(frozen=True)
class SecondTry:
    """What became of the dead letter, and where Prefect shows it."""

    letter: Job
    child: Job
    run_page: str | None
    """None when a scheduled pass was quicker than ours."""
    event_page: str

    def lines(self) -> list[str]:
        """Return what is said of it at the end."""
        said = [
            f"Job {self.letter.job_id} failed, because {LATE} was not there, and stayed FAILED, a dead letter",
            f"jobs-dlq-retry retried it as job {self.child.job_id}, which is {self.child.state.value}",
        ]
        if self.run_page is not None:
            said.append(f"    the pass, with its artifact of dead letters: {self.run_page}")
        return [*said, f"    the event {RETRIED}: {self.event_page}"]


class LateDocument:
    """Follows one document that comes too late.

    Args:
        store: where its job is seen.
        prefect: the server whose dead-letter pass is asked for, and that shows the event.
        folder: where the document will be.
        tell: called with a sentence for people.
    """

    def __init__(
        self, store: PgJobsStore, prefect: DemoPrefect, folder: Path, tell: Callable[[str], None]
    ) -> None:
        self._may_arrive = asyncio.Event()
        self._store = store
        self._prefect = prefect
        self._path = folder / LATE
        self._tell = tell

    def let_arrive(self) -> None:
        """From now on the cause may be mended."""
        self._may_arrive.set()

    async def submit(self, job_type: str, archive: Path) -> Job:
        """Register the job of the document that is not there yet."""
        return await register_job(job_type, ArchiveDocument(source=str(self._path), store=archive))

    async def run(self, first: Job) -> SecondTry:
        """Wait for the failure, mend its cause when it may be, and return once the retry has succeeded."""
        await self._until(lambda: self._has_failed(first.job_id))
        await self._may_arrive.wait()
        self._path.write_text("Late, and welcome: the job that failed without this text is retried.\n")
        self._tell(f"{LATE} has arrived; jobs-dlq-retry runs now and not at its next quarter of an hour")
        asked, child = await self._retried(first.job_id)
        self._tell(f"the dead letter of {LATE} was retried by jobs-dlq-retry, and its new job succeeded")
        event_page = await self._until(lambda: self._prefect.event_page(first.job_id, RETRIED))
        run_page = None if asked is None else self._prefect.run_page(asked)
        return SecondTry(first, child, run_page, event_page)

    async def _retried(self, job_id: UUID) -> tuple[UUID | None, Job]:
        """Have passes run until the job's chain ends well; return the last run asked for, and its last job."""
        asked = None
        while (job := await end_of_chain(self._store, job_id)).state is not JobState.SUCCEEDED:
            if job.state is JobState.FAILED:
                asked = await self._prefect.run_now(RETRY)
                await self._until(partial(self._is_over, asked))
            await asyncio.sleep(FOLLOW)
        return asked, job

    async def _is_over(self, run: UUID) -> bool | None:
        return await self._prefect.is_over(run) or None

    async def _has_failed(self, job_id: UUID) -> bool | None:
        return (await self._store.get(job_id)).completed_at is not None or None

    async def _until(self, look: Callable[[], Awaitable[Found | None]]) -> Found:
        while (found := await look()) is None:  # noqa: ASYNC110 -- other processes bring it about
            await asyncio.sleep(FOLLOW)
        return found


async def end_of_chain(store: PgJobsStore, job_id: UUID) -> Job:
    """Return the newest job of a chain: itself, or what it was retried as."""
    job = await store.get(job_id)
    while job.retry_child_id is not None:
        job = await store.get(job.retry_child_id)
    return job
