"""Ids carry no order that matters: other clocks, other versions, the same millisecond (API-6)."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import JobFilter
from durable_jobs.tenants import job_tenant_scope
from tests.support.jobs import QUEUE, enter, new_job


def id_of_a_clock_that_is_off_by(seconds: int) -> UUID:
    moment = int((time.time() + seconds) * 1000).to_bytes(6, "big")
    drawn = bytearray(moment + uuid4().bytes[6:])
    drawn[6] = drawn[6] & 0x0F | 0x70
    return UUID(bytes=bytes(drawn))


async def test_pages_skip_nothing_while_ids_of_other_clocks_and_versions_arrive(
    pg_store: PgJobsStore,
) -> None:
    def ids() -> list[UUID]:
        return [uuid7(), id_of_a_clock_that_is_off_by(-900), id_of_a_clock_that_is_off_by(900), uuid4()]

    with job_tenant_scope("acme"):
        for _ in range(10):
            await pg_store.register_idempotent([new_job(job_id=job_id) for job_id in ids()])
        known = {job.job_id for job in (await pg_store.list_jobs(JobFilter(), limit=100)).jobs}
        assert len(known) == 40
        seen: list[UUID] = []
        page = await pg_store.list_jobs(JobFilter(), limit=3)
        while True:
            seen += [job.job_id for job in page.jobs]
            await pg_store.register_idempotent([new_job(job_id=job_id) for job_id in ids()])
            if page.next is None:
                break
            page = await pg_store.list_jobs(JobFilter(), after=page.next, limit=3)
    assert len(seen) == len(set(seen)) == 40
    assert set(seen) == known


async def test_age_is_the_time_of_registration_not_of_the_id(pg_store: PgJobsStore) -> None:
    executor = await enter(pg_store)
    order = [id_of_a_clock_that_is_off_by(900), uuid4(), id_of_a_clock_that_is_off_by(-900)]
    with job_tenant_scope("acme"):
        for job_id in order:
            await pg_store.register_idempotent([new_job(job_id=job_id)])
    assert [job.job_id for job in (await pg_store.claim(executor, QUEUE, 3)).jobs] == order


async def test_a_job_that_commits_late_is_claimed_although_its_time_has_passed(pg_store: PgJobsStore) -> None:
    executor = await enter(pg_store)
    with job_tenant_scope("acme"):
        early = new_job()

        async def amid(connection: object) -> None:
            from durable_jobs.stores.postgres.within import within

            await within(connection).register_idempotent([early])
            for _ in range(3):
                await pg_store.register_idempotent([new_job()])
            assert len((await pg_store.claim(executor, QUEUE, 10)).jobs) == 3

        await pg_store._db.in_transaction(amid)
    assert [job.job_id for job in (await pg_store.claim(executor, QUEUE, 10)).jobs] == [early.job_id]
