"""Registration inside the caller's transaction, through every kind of connection: all or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest
from pydantic import BaseModel

from durable_jobs import Job, Queue, job_type, register_job, sync
from durable_jobs.errors import BadInput, QueueFull
from durable_jobs.job_types import MARK
from durable_jobs.registry import Registry
from durable_jobs.runtime import Runtime
from durable_jobs.settings import Settings
from tests.support.connections import ASYNC, SYNC
from tests.support.probes import PgProbe


class Nothing(BaseModel):
    """An empty request."""


@job_type("WITHIN", queue=Queue("narrow", max_pending=2), payload=Nothing)
def within(request: Nothing, context: object) -> None:
    """Never executed here."""


class Undone(Exception):
    """Rolls the caller's transaction back."""


@pytest.fixture
async def runtime(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runtime]:
    runtime = Runtime(Settings.load(database_url=database_url))
    runtime.__dict__["registry"] = Registry.of([getattr(within, MARK)])
    monkeypatch.setattr("durable_jobs.runtime._installed", runtime)
    yield runtime
    await runtime.close()


WAYS = [("async", name) for name in ASYNC] + [("sync", name) for name in SYNC]


async def register(way: tuple[str, str], url: str, *keys: str, undo: bool = False) -> list[Job]:
    """Register jobs in one transaction of the caller."""
    kind, name = way
    if kind == "async":
        async with ASYNC[name](url) as connection:
            jobs = [
                await register_job("WITHIN", {}, idempotency_key=key, connection=connection) for key in keys
            ]
            if undo:
                raise Undone
    else:
        with SYNC[name](url) as connection:
            jobs = [
                sync.register_job("WITHIN", {}, idempotency_key=key, connection=connection) for key in keys
            ]
            if undo:
                raise Undone
    return jobs


@pytest.mark.parametrize("way", WAYS, ids="-".join)
async def test_a_job_exists_exactly_if_the_transaction_commits(
    runtime: Runtime, database_url: str, owner_connection: psycopg.Connection, way: tuple[str, str]
) -> None:
    probe = PgProbe(owner_connection)
    with pytest.raises(Undone):
        await register(way, database_url, "a", undo=True)
    assert (probe.jobs(), probe.counted("narrow")) == ([], 0)
    jobs = await register(way, database_url, "a", "b", "a")
    assert jobs[2].job_id == jobs[0].job_id
    assert {row["job_id"] for row in probe.jobs()} == {jobs[0].job_id, jobs[1].job_id}
    [known] = await register(way, database_url, "a")
    assert known.job_id == jobs[0].job_id
    with pytest.raises(QueueFull):
        await register(way, database_url, "c")
    assert probe.counted("narrow") == 2


async def test_anything_else_is_refused_with_the_way_out(runtime: Runtime) -> None:
    with pytest.raises(BadInput, match=r"connection is a builtins\.str: use an SQLAlchemy"):
        await register_job("WITHIN", {}, connection="postgresql://")
    with pytest.raises(BadInput, match=r"for an async connection use durable_jobs\.register_job"):
        sync.register_job("WITHIN", {}, connection="postgresql://")
