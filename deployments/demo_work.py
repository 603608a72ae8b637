"""The work of the demo: documents become DOCUMENT_ARCHIVE jobs, a few at a time, and are followed to their end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from durable_jobs.deployments.demo_kill import Recovery, ShiftKiller
from durable_jobs.deployments.demo_letter import LateDocument, SecondTry, end_of_chain
from durable_jobs.deployments.demo_view import Counts
from durable_jobs.deployments.stack import StackFailed
from durable_jobs.documents.payload import ArchiveDocument
from durable_jobs.errors import BadInput, QueueFull
from durable_jobs.jobs import Job
from durable_jobs.registration import register_jobs
from durable_jobs.runtime import current_runtime
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import Cursor, JobFilter
from durable_jobs.tenants import DEFAULT_TENANT, job_tenant_scope

JOB_TYPE = "DOCUMENT_ARCHIVE"
WAVES, LARGEST_WAVE = 20, 500
BETWEEN_WAVES, POLL = timedelta(seconds=0.25), timedelta(seconds=0.25)
PATIENCE = timedelta(minutes=4)
PAGE, READ_AT_ONCE = 500, 16
KILL_AFTER = 1 / 3
"""The part of the work that is done when the shift is killed."""


def documents_below(folder: Path) -> list[Path]:
    """Return everything below a folder that is not itself a folder.

    Raises:
        BadInput: there is no such folder, or nothing in it.
    """
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise BadInput(f"--documents {folder}: there is no such folder")
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if not found:
        raise BadInput(f"--documents {folder}: the folder is empty; give one that holds documents")
    return found


class Outcome(NamedTuple):
    """What became of the work."""

    jobs: list[Job]
    """The last one of each chain: itself, or what it was retried as."""
    recovery: Recovery | None
    """None when the shift was never met at work, so that nothing was killed."""
    second_try: SecondTry


class Acts(NamedTuple):
    """What happens while the documents are archived."""

    killer: ShiftKiller
    late: LateDocument


async def archive_all(
    documents: Sequence[Path],
    archive: Path,
    show: Callable[[Counts], None],
    meanwhile: Callable[[], None],
    make_acts: Callable[[PgJobsStore], Acts],
) -> Outcome:
    """Register a job for each document, and one for a document that comes too late; follow all to their end.

    Their shift is killed once meanwhile, and what failed is retried once.

    Args:
        documents: what to archive.
        archive: folder of the archive.
        show: called with the counters.
        meanwhile: called again and again while waiting.
        make_acts: makes what happens meanwhile.

    Raises:
        DurableJobsError: nothing has moved for a long time, or the store is away.
    """
    runtime = current_runtime()
    with job_tenant_scope(DEFAULT_TENANT):
        try:
            store = await runtime.store()
            return await _archive_all(store, documents, archive, show, meanwhile, make_acts(store))
        except ExceptionGroup as faults:
            # One of the tasks failed and the others were cancelled: its fault is what people need to know.
            raise faults.exceptions[0] from faults
        finally:
            await runtime.close()


async def _archive_all(
    store: PgJobsStore,
    documents: Sequence[Path],
    archive: Path,
    show: Callable[[Counts], None],
    meanwhile: Callable[[], None],
    acts: Acts,
) -> Outcome:
    killer, late = acts
    first = await late.submit(JOB_TYPE, archive)
    ids = [first.job_id]
    async with asyncio.TaskGroup() as group:
        killing = group.create_task(killer.run())
        retrying = group.create_task(late.run(first))
        submitting = group.create_task(_submit(documents, archive, ids))
        counts, moved = Counts(len(documents) + 1), time.monotonic()
        while not (submitting.done() and retrying.done() and _is_over(counts, killer, killing)):
            await asyncio.sleep(POLL.total_seconds())
            meanwhile()
            before, counts = counts, await _count(store, set(ids), counts.total)
            show(counts)
            if counts.done >= counts.total * KILL_AFTER:
                killer.let_strike()
            if killing.done() or _is_over(counts, killer, killing):
                late.let_arrive()
            moved = moved if counts == before else time.monotonic()
            if time.monotonic() - moved > PATIENCE.total_seconds():
                raise StackFailed(f"nothing has moved for {PATIENCE}; at last: {counts}")
        killing.cancel()
    jobs = await _read(store, ids)
    return Outcome(jobs, None if killing.cancelled() else killing.result(), retrying.result())


def _is_over(counts: Counts, killer: ShiftKiller, killing: asyncio.Task[Recovery]) -> bool:
    return counts.done >= counts.total and (killing.done() or not killer.has_struck)


async def _submit(documents: Sequence[Path], archive: Path, ids: list[UUID]) -> None:
    """Register the documents a wave at a time, as they would come in; wait where the queue is full."""
    size = min(-(-len(documents) // WAVES), LARGEST_WAVE)
    waves = [documents[first : first + size] for first in range(0, len(documents), size)]
    while waves:
        requests = [ArchiveDocument(source=str(path), store=archive) for path in waves[0]]
        try:
            ids += [job.job_id for job in await register_jobs(JOB_TYPE, requests)]
            waves.pop(0)
        except QueueFull:
            # Nothing of the wave was registered; the jobs before it make room.
            continue
        finally:
            await asyncio.sleep(BETWEEN_WAVES.total_seconds())


async def _count(store: PgJobsStore, ids: set[UUID], total: int) -> Counts:
    # What was retried counts as what it was retried as.
    others = [s for s in JobState if s not in (JobState.SUCCEEDED, JobState.RETRIED)]
    unfinished = JobFilter(states=tuple(others))
    states: Counter[JobState] = Counter()
    cursor: Cursor | None = None
    while True:
        page = await store.list_jobs(unfinished, after=cursor, limit=PAGE)
        states.update(job.state for job in page.jobs if job.root_job_id in ids)
        cursor = page.next
        if cursor is None:
            break
    queued, running = states[JobState.PENDING], states[JobState.RUNNING]
    return Counts(total, queued, running, len(ids) - states.total(), states.total() - queued - running)


async def _read(store: PgJobsStore, ids: Sequence[UUID]) -> list[Job]:
    jobs: list[Job] = []
    for first in range(0, len(ids), READ_AT_ONCE):
        some = ids[first : first + READ_AT_ONCE]
        jobs += await asyncio.gather(*(end_of_chain(store, job_id) for job_id in some))
    return jobs
