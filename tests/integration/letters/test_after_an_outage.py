"""5,000 dead letters of four tenants after an outage: they come back gradually, behind fresh work, all of them.

The dependency bears 20 requests at once and fails every further one; a pass stands for a quarter of an hour.
"""

from __future__ import annotations

from collections import Counter

import psycopg

from durable_jobs.dead_letters.retrying import PER_TENANT, Retrier
from durable_jobs.registry import Registry
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.support import letter_types
from tests.support.history import DAY, add_jobs
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import PgProbe

TENANTS = ("a", "b", "c", "d")
LETTERS = 5_000
BEARS = 20
RETRIES = 3


async def test_thousands_come_back_within_the_caps_and_none_passes_its_limit(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    for tenant in TENANTS:
        add_jobs(owner_connection, LETTERS // len(TENANTS), DAY, tenant=tenant, state="FAILED")
    registry = Registry.from_modules([letter_types])
    executor = await enter(pg_store)
    passes = 0
    while await pg_store.tenants("failed"):
        passes += 1
        retrier = Retrier(pg_store, registry, by="test")
        done = [await retrier.retry_tenant(tenant) for tenant in await pg_store.tenants("failed")]
        assert all(len(one.retried) <= PER_TENANT for one in done)
        fresh = new_job()
        with job_tenant_scope("a"):
            await pg_store.register_idempotent([fresh])
        # One tenant's turn is one claim: what is fresh is at its head, before a retry of any age.
        claimed = (await pg_store.claim(executor, QUEUE, 1_000)).jobs
        assert [job.job_id for job in claimed if job.retry_count == 0] == [fresh.job_id]
        assert next(job for job in claimed if job.tenant_id == "a").job_id == fresh.job_id
        borne = {job.job_id for job in claimed[:: max(1, len(claimed) // BEARS)][:BEARS]} | {fresh.job_id}
        await pg_store.finish([succeeded(j) if j.job_id in borne else failed(j) for j in claimed])
        assert passes <= 2 * (RETRIES + 1) * LETTERS // (PER_TENANT * len(TENANTS)), "not in bounded time"
    rows = PgProbe(owner_connection).jobs()
    assert max(row["retry_count"] for row in rows) == RETRIES
    ends = Counter(row["state"] for row in rows if row["state"] != "RETRIED")
    assert set(ends) == {"SUCCEEDED", "ABANDONED"}
    assert sum(ends.values()) == LETTERS + passes, "each chain has one end, and each fresh job"
    per_chain = Counter(row["root_job_id"] for row in rows)
    assert max(per_chain.values()) <= RETRIES + 1
