"""Whatever plan the database chooses: never more than asked for, and no cost for what only waits."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from sqlalchemy.engine import make_url

from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import Decision
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import Urls
from tests.support.jobs import QUEUE, enter, new_job, succeeded
from tests.support.probes import PgProbe
from tests.support.stores import open_store

WORKERS = 6


@pytest.fixture
async def skewed(new_database: Callable[[], Urls]) -> AsyncIterator[tuple[PgJobsStore, Urls]]:
    """A store whose tables were never analysed, and whose planner may neither hash nor materialise."""
    urls = new_database()
    url = make_url(urls.application)
    with psycopg.connect(urls.admin, autocommit=True) as owner:
        owner.execute("ALTER TABLE job_history SET (autovacuum_enabled = false)")
    options = "-c enable_hashjoin=off -c enable_material=off -c enable_mergejoin=off"
    hindered = url.update_query_dict({"options": options}).render_as_string(hide_password=False)
    async with open_store(hindered, pool_size=WORKERS) as store:
        yield store, urls


async def test_claims_take_what_was_asked_whatever_the_plan(skewed: tuple[PgJobsStore, Urls]) -> None:
    store, _ = skewed
    executor = await enter(store)
    for tenant in ("a", "b", "c"):
        with job_tenant_scope(tenant):
            await store.register_idempotent([new_job() for _ in range(400)])
    taken: Counter[object] = Counter()

    async def worker() -> None:
        while jobs := (await store.claim(executor, QUEUE, 10)).jobs:
            assert len(jobs) <= 10
            taken.update(job.job_id for job in jobs)
            assert await store.finish([succeeded(job) for job in jobs]) == []

    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    # A worker may leave early, while others hold the last rows.
    while jobs := (await store.claim(executor, QUEUE, 10)).jobs:
        taken.update(job.job_id for job in jobs)
    assert (len(taken), set(taken.values())) == (1_200, {1})


async def test_six_reconcilers_settle_each_orphan_once_ten_at_a_time(
    skewed: tuple[PgJobsStore, Urls],
) -> None:
    store, urls = skewed
    dead = await enter(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job() for _ in range(1_000)])
    assert len((await store.claim(dead, QUEUE, 1_000)).jobs) == 1_000
    settled: Counter[object] = Counter()

    async def reconciler() -> None:
        while True:
            batch = await store.settle_orphans("acme", [dead], lambda _: Decision(False), max_crashes=3)
            assert len(batch) <= 10
            settled.update(batch.keys())
            if not batch:
                return

    await asyncio.gather(*(reconciler() for _ in range(WORKERS)))
    assert (len(settled), set(settled.values())) == (1_000, {1})
    with psycopg.connect(urls.admin) as owner:
        events = Counter(event["job_id"] for event in PgProbe(owner).events())
    assert (len(events), set(events.values())) == (1_000, {1})


async def test_overdue_jobs_are_failed_as_many_as_asked(skewed: tuple[PgJobsStore, Urls]) -> None:
    store, _ = skewed
    executor = await enter(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job() for _ in range(200)])
    await store.claim(executor, QUEUE, 200)
    later = datetime.now(UTC) + timedelta(hours=2)
    answers = await asyncio.gather(
        *(store.fail_overdue(margin=timedelta(0), limit=7, now=later) for _ in range(WORKERS))
    )
    assert all(len(answer) <= 7 for answer in answers)
    ids = [job_id for answer in answers for job_id in answer]
    assert len(ids) == len(set(ids))


def buffers_of_a_claim(urls: Urls, executor: UUID) -> int:
    """Return how many pages a claim of one job touches; the claim is taken back."""
    call = f"SELECT * FROM claim_jobs('{executor}', 'work', 1, '', NULL, NULL)"
    with psycopg.connect(urls.application) as connection:
        assert len(connection.execute(call).fetchall()) == 1
        connection.rollback()
        row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}").fetchone()
        connection.rollback()
    document = row[0] if row else []
    plan = (document if isinstance(document, list) else json.loads(document))[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("ahead", ["delayed", "other tenants' delayed"])
async def test_delayed_jobs_at_the_head_cost_nothing(
    pg_store: PgJobsStore, urls: Urls, owner_connection: psycopg.Connection, ahead: str
) -> None:
    executor = await enter(pg_store)
    later = datetime.now(UTC) + timedelta(hours=1)
    with job_tenant_scope("m"):
        await pg_store.register_idempotent([new_job()])
    costs = []
    for _ in range(2):
        with job_tenant_scope("m" if ahead == "delayed" else "a"):
            for _ in range(len(costs) * 19 + 1):
                await pg_store.register_idempotent([new_job(priority=5, run_at=later) for _ in range(200)])
        owner_connection.execute("ANALYZE job_history")
        costs.append(buffers_of_a_claim(urls, executor))
    few, many = costs
    assert many <= few + 10, f"200 delayed jobs cost {few} pages, 4,000 cost {many}"


async def test_a_claim_costs_the_same_beside_a_long_history(
    pg_store: PgJobsStore, urls: Urls, owner_connection: psycopg.Connection
) -> None:
    executor = await enter(pg_store)
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job() for _ in range(300)])
    jobs = (await pg_store.claim(executor, QUEUE, 200)).jobs
    await pg_store.finish([succeeded(job) for job in jobs])
    owner_connection.execute("VACUUM ANALYZE job_history")
    few = buffers_of_a_claim(urls, executor)
    owner_connection.execute(
        "INSERT INTO job_history (job_id, tenant_id, job_type, queue, state, payload, payload_hash, result,"
        " root_job_id, completed_at) SELECT id, 'acme', 'WORK', 'work', 'SUCCEEDED', '{}', 'h', '{}', id, now()"
        " FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 20000)) ids"
    )
    owner_connection.execute("VACUUM ANALYZE job_history")
    many = buffers_of_a_claim(urls, executor)
    assert many <= few + 10, f"{few} pages beside 200 finished jobs, {many} beside 20,000"
