"""One key is one job, however many ask for it at once and whatever becomes of the first."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
from uuid_utils.compat import uuid7

from durable_jobs.errors import IdempotencyConflict, StoreUnavailable
from durable_jobs.jobs import NewJob
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.within import within
from durable_jobs.stores.protocols import Registered
from durable_jobs.tenants import job_tenant_scope
from tests.support.eventually import eventually
from tests.support.jobs import QUEUE, new_job
from tests.support.probes import PgProbe
from tests.support.stores import open_store

CALLERS = 50


def request(**changes: object) -> NewJob:
    return new_job({"n": 1}, idempotency_key="k", max_pending=100, **changes)


async def ask_at_once(store: PgJobsStore, n: int) -> list[Registered]:
    answers = await asyncio.gather(*(store.register_idempotent([request()]) for _ in range(n)))
    return [answer for [answer] in answers]


async def test_fifty_at_once_get_one_job(database_url: str, owner_connection: psycopg.Connection) -> None:
    async with open_store(database_url, pool_size=25) as store:
        with job_tenant_scope("acme"):
            answers = await ask_at_once(store, CALLERS)
    assert len({answer.job.job_id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    probe = PgProbe(owner_connection)
    assert len(probe.jobs()) == probe.counted(QUEUE) == 1


@pytest.mark.parametrize("first_commits", [True, False])
async def test_fifty_wait_for_the_first_and_agree_whether_it_commits_or_rolls_back(
    database_url: str, owner_connection: psycopg.Connection, first_commits: bool
) -> None:
    async with (
        open_store(database_url, pool_size=25) as store,
        await psycopg.AsyncConnection.connect(database_url) as mine,
    ):
        with job_tenant_scope("acme"):
            first = request()
            await within(mine).register_idempotent([first])
            others = asyncio.create_task(ask_at_once(store, CALLERS - 1))
            await eventually(lambda: _waiting_for_locks(owner_connection) >= 20)
            await (mine.commit() if first_commits else mine.rollback())
            answers = await others
    ids = {answer.job.job_id for answer in answers}
    assert len(ids) == 1
    assert (first.job_id in ids) == first_commits
    assert sum(answer.created for answer in answers) == (0 if first_commits else 1)
    probe = PgProbe(owner_connection)
    assert len(probe.jobs()) == probe.counted(QUEUE) == 1


async def test_who_waits_too_long_hears_it_and_may_ask_again(
    database_url: str, owner_connection: psycopg.Connection
) -> None:
    async with (
        open_store(database_url, timeout=timedelta(seconds=1)) as store,
        await psycopg.AsyncConnection.connect(database_url) as mine,
    ):
        with job_tenant_scope("acme"):
            await within(mine).register_idempotent([request()])
            with pytest.raises(StoreUnavailable, match="did not answer within 1 s"):
                await store.register_idempotent([request()])
            await mine.rollback()
            [answer] = await store.register_idempotent([request()])
    probe = PgProbe(owner_connection)
    assert [row["job_id"] for row in probe.jobs()] == [answer.job.job_id]
    assert probe.counted(QUEUE) == 1


async def test_other_data_at_the_same_moment_is_refused(
    database_url: str, owner_connection: psycopg.Connection
) -> None:
    async with open_store(database_url, pool_size=20) as store:
        with job_tenant_scope("acme"):
            answers = await asyncio.gather(
                *(
                    store.register_idempotent([new_job({"n": n % 2}, idempotency_key="k", max_pending=100)])
                    for n in range(20)
                ),
                return_exceptions=True,
            )
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert {type(answer) for answer in refused} == {IdempotencyConflict}
    assert len(refused) == 10
    probe = PgProbe(owner_connection)
    assert len(probe.jobs()) == probe.counted(QUEUE) == 1


async def test_bulks_that_share_keys_in_any_order_do_not_block_each_other(
    database_url: str, owner_connection: psycopg.Connection
) -> None:
    def bulk(numbers: range) -> list[NewJob]:
        return [new_job({"n": n}, idempotency_key=f"k{n}", max_pending=200) for n in numbers]

    async with open_store(database_url, pool_size=12) as store:
        for turn in range(10):
            keys = [range(turn * 10, turn * 10 + 30), range(turn * 10 + 29, turn * 10 - 1, -1)] * 6
            with job_tenant_scope("acme"):
                answers = await asyncio.gather(
                    *(store.register_idempotent(bulk(numbers)) for numbers in keys)
                )
            by_key: dict[str | None, set[object]] = {}
            for answer in (one for some in answers for one in some):
                by_key.setdefault(answer.job.idempotency_key, set()).add(answer.job.job_id)
            assert {len(ids) for ids in by_key.values()} == {1}
    probe = PgProbe(owner_connection)
    assert len(probe.jobs()) == probe.counted(QUEUE) == 120
    # Each counter is exact by itself, also where a bulk lost the race for some of its keys.
    booked = owner_connection.execute(
        "SELECT q.shard, q.pending - coalesce((SELECT sum(r.released) FROM queue_pending_released r"
        " WHERE r.shard = q.shard), 0), (SELECT count(*) FROM job_history j WHERE j.pending_shard = q.shard)"
        " FROM queue_pending q"
    ).fetchall()
    assert all(counted == rows for _, counted, rows in booked)


async def test_a_key_whose_job_is_purged_at_that_moment_is_registered_anew(
    pg_store: PgJobsStore, admin_url: str, owner_connection: psycopg.Connection
) -> None:
    """The purge wins while the registration looks: the answer must not be a job that does not exist."""
    with job_tenant_scope("acme"):
        known = request()._replace(max_pending=16)
        await pg_store.register_idempotent([known])
        others = [new_job(max_pending=16) for _ in range(15)]
        await pg_store.register_idempotent(others)
        for job in others[:10]:
            await pg_store.cancel(job.job_id)
        # The registration knows the key, then waits for room: the job is purged meanwhile.
        with psycopg.connect(admin_url) as other:
            other.execute("SELECT * FROM queue_pending FOR UPDATE")
            asking = asyncio.gather(
                pg_store.register_idempotent([known._replace(job_id=uuid7()), *(new_job() for _ in range(6))])
            )
            await eventually(lambda: _waiting_for_locks(owner_connection) == 1)
            owner_connection.execute("DELETE FROM job_history WHERE job_id = %s", [known.job_id])
            other.rollback()
        [[answer, *_]] = await asking
        assert answer.created
        assert answer.job.job_id != known.job_id
        assert (await pg_store.get(answer.job.job_id)).state == "PENDING"


def _waiting_for_locks(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%register_jobs%'"
    ).fetchone()
    return row[0] if row else 0
