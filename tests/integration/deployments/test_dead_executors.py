"""What dead processes of this machine held is settled at once, what living ones hold is left alone."""

import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from durable_jobs.deployments.dead_executors import settle_dead_executors
from durable_jobs.settings import Settings
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import JobFilter, QueueUse
from durable_jobs.tenants import job_tenant_scope
from tests.support.jobs import QUEUE, enter, new_job

_JOBS = """
from pydantic import BaseModel
from durable_jobs import JobContext, Queue, job_type

work_queue = Queue("work")


@job_type("WORK", queue="work")
async def work(request: BaseModel, context: JobContext) -> None: ...
"""


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of a program that declares the type of the jobs: others leave them to one that does."""
    module = tmp_path / "their_jobs.py"
    module.write_text(_JOBS)
    return Settings.load(database_url=database_url, modules=(str(module),))


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


async def running_job(store: PgJobsStore, pid: int) -> None:
    """Make a job that an executor with this process id has claimed, with a part of its queue's bound."""
    executor = await enter(store, pid=pid)
    await store.lease_queues(executor, [QueueUse(QUEUE, 10, 0)], stale_after=timedelta(seconds=30))
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job()])
    ((job,), _) = await store.claim(executor, QUEUE, 1)
    assert job.tenant_id == "acme"


async def states(store: PgJobsStore) -> list[JobState]:
    with job_tenant_scope("acme"):
        return [job.state for job in (await store.list_jobs(JobFilter())).jobs]


async def test_jobs_of_a_dead_process_are_settled_at_once(pg_store: PgJobsStore, settings: Settings) -> None:
    await running_job(pg_store, ended_process())
    report = await settle_dead_executors(settings)
    assert (len(report.removed), report.settled.total()) == (1, 1)
    assert await states(pg_store) == [JobState.FAILED]
    assert await pg_store.executors() == []


async def test_a_living_process_keeps_its_jobs(pg_store: PgJobsStore, settings: Settings) -> None:
    await running_job(pg_store, os.getpid())
    report = await settle_dead_executors(settings)
    assert report.removed == []
    assert await states(pg_store) == [JobState.RUNNING]


@pytest.fixture
def younger() -> Iterator[int]:
    """Number of a process that has just begun."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


async def test_a_younger_process_with_the_same_number_is_another(
    pg_store: PgJobsStore, settings: Settings, younger: int, owner_connection: psycopg.Connection
) -> None:
    await running_job(pg_store, younger)
    owner_connection.execute("UPDATE job_executors SET started_at = started_at - interval '1 hour'")
    report = await settle_dead_executors(settings)
    assert len(report.removed) == 1
    assert await states(pg_store) == [JobState.FAILED]
