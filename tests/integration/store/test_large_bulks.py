"""A thousand large requests are more than one statement can take; they are all or nothing all the same."""

from __future__ import annotations

import psycopg
import pytest

from durable_jobs.errors import IdempotencyConflict, PayloadTooLarge, QueueFull
from durable_jobs.jobs import NewJob
from durable_jobs.stores.postgres import PgJobsStore, statements
from durable_jobs.stores.postgres.statements import in_parts
from durable_jobs.stores.postgres.within import StoreWithin, SyncStoreWithin
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import Urls
from tests.support.jobs import new_job
from tests.support.probes import PgProbe

HOW = ["store", "async", "async autocommit", "sync", "sync autocommit"]


@pytest.fixture(autouse=True)
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a statement could take no more than two of these requests."""
    monkeypatch.setattr(statements, "MOST_TEXT", 250)


def large(key: str, *, bound: int | None = None) -> NewJob:
    return new_job({"data": "x" * 100}, idempotency_key=key, max_pending=bound)


async def register(how: str, urls: Urls | None, store: PgJobsStore, jobs: list[NewJob]) -> list[str | None]:
    with job_tenant_scope("acme"):
        if how == "store" or urls is None:
            answers = await store.register_idempotent(jobs)
        elif how.startswith("async"):
            async with await psycopg.AsyncConnection.connect(
                urls.application, autocommit=how.endswith("autocommit")
            ) as connection:
                answers = await StoreWithin(connection).register_idempotent(jobs)
        else:
            with psycopg.connect(urls.application, autocommit=how.endswith("autocommit")) as own:
                answers = SyncStoreWithin(own).register_idempotent(jobs)
    return [answer.job.idempotency_key for answer in answers]


def test_parts_keep_the_order_and_leave_nothing_out() -> None:
    jobs = [large(str(n)) for n in range(5)]
    parts = in_parts(jobs)
    assert [len(part) for part in parts] == [2, 2, 1]
    assert [job for part in parts for job in part] == jobs
    # One that is larger than a part is a part of its own.
    huge = new_job({"data": "x" * 1_000})
    assert in_parts([huge, huge]) == [[huge], [huge]]


@pytest.mark.parametrize("how", HOW)
async def test_all_are_registered_in_order(
    how: str, pg_store: PgJobsStore, urls: Urls, owner_connection: psycopg.Connection
) -> None:
    keys = [f"k{n}" for n in range(5)]
    assert await register(how, urls, pg_store, [large(key) for key in keys]) == keys
    assert len(PgProbe(owner_connection).jobs()) == 5


@pytest.mark.parametrize("how", HOW)
async def test_a_refusal_in_a_later_part_takes_everything_back(
    how: str, pg_store: PgJobsStore, urls: Urls, owner_connection: psycopg.Connection
) -> None:
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job({"data": "other"}, idempotency_key="k3")])
    with pytest.raises(IdempotencyConflict, match="idempotency key 'k3'"):
        await register(how, urls, pg_store, [large(f"k{n}") for n in range(5)])
    with pytest.raises(QueueFull):
        await register(how, urls, pg_store, [large(f"b{n}", bound=4) for n in range(5)])
    assert [job["idempotency_key"] for job in PgProbe(owner_connection).jobs()] == ["k3"]


async def test_what_no_statement_can_hold_is_not_taken_for_an_outage(pg_store: PgJobsStore) -> None:
    """Whoever waits for a database to come back would repeat it for ever: outcomes, for one."""
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        await pg_store._db.fetch("SELECT to_jsonb(repeat('x', 268435456))", {})
    with pytest.raises(PayloadTooLarge, match="a payload of WORK is more than Postgres can hold"):
        await register("store", None, pg_store, [new_job("x" * 268435456)])
