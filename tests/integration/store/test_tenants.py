"""Tenants stay apart on shared connections, whatever goes wrong on them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest

from durable_jobs.errors import BadInput, JobNotFound, MissingTenant, QueueFull
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import JobFilter
from durable_jobs.tenants import job_tenant_scope
from tests.support import pgbouncer
from tests.support.jobs import new_job
from tests.support.probes import PgProbe
from tests.support.stores import open_store

TENANTS = ("a", "b", "c")
OPERATIONS = 10_000
CALLERS = 16


class FaultOfTheCaller(Exception):
    """Raised amid a transaction."""


class Traffic:
    """What callers of three tenants do at once, well and badly."""

    def __init__(self, store: PgJobsStore, mine: dict[str, list[UUID]]) -> None:
        self.store = store
        self.mine = mine
        self.done = 0

    async def call(self, number: int) -> None:
        """Do one operation in the name of a tenant."""
        choice = random.Random(number)
        tenant = choice.choice(TENANTS)
        other = choice.choice([t for t in TENANTS if t != tenant])
        operation: Callable[..., Awaitable[None]] = choice.choice(
            [self.read, self.reach_over, self.change, self.refused, self.cancelled, self.times_out,
             self.roll_back_to_savepoint, self.raise_amid, self.list]
        )  # fmt: skip
        with job_tenant_scope(tenant):
            await operation(tenant, choice.choice(self.mine[tenant]), choice.choice(self.mine[other]))
        self.done += 1

    async def read(self, tenant: str, mine: UUID, other: UUID) -> None:
        assert (await self.store.get(mine)).tenant_id == tenant

    async def list(self, tenant: str, mine: UUID, other: UUID) -> None:
        page = await self.store.list_jobs(JobFilter(), limit=5)
        assert {job.tenant_id for job in page.jobs} == {tenant}

    async def reach_over(self, tenant: str, mine: UUID, other: UUID) -> None:
        for call in (self.store.get(other), self.store.update(other, progress={"by": tenant})):
            with pytest.raises(JobNotFound):
                await call

    async def change(self, tenant: str, mine: UUID, other: UUID) -> None:
        job = await self.store.update(mine, progress={"by": tenant})
        assert job.progress == {"by": tenant}

    async def refused(self, tenant: str, mine: UUID, other: UUID) -> None:
        with pytest.raises(QueueFull):
            await self.store.register_idempotent([new_job(max_pending=1) for _ in range(2)])

    async def cancelled(self, tenant: str, mine: UUID, other: UUID) -> None:
        task = asyncio.create_task(self.store.update(mine, progress={"by": tenant}))
        await asyncio.sleep(random.random() / 500)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def times_out(self, tenant: str, mine: UUID, other: UUID) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(random.random() / 500):
                await self.store.get(mine)

    async def roll_back_to_savepoint(self, tenant: str, mine: UUID, other: UUID) -> None:
        async def work(connection: psycopg.AsyncConnection[Any]) -> list[Any]:
            with suppress(FaultOfTheCaller):
                async with connection.transaction():
                    await connection.execute("SELECT set_tenants(ARRAY[%s])", [tenant])
                    await connection.execute(
                        'UPDATE job_history SET progress = \'{"by": "nobody"}\' WHERE job_id = %s', [mine]
                    )
                    raise FaultOfTheCaller
            cursor = await connection.execute("SELECT tenant_id FROM job_history")
            return await cursor.fetchall()

        # The setting went with the savepoint.
        assert await self.store._db.in_transaction(work) == []

    async def raise_amid(self, tenant: str, mine: UUID, other: UUID) -> None:
        async def work(connection: psycopg.AsyncConnection[Any]) -> None:
            await connection.execute("SELECT set_tenants(ARRAY[%s])", [tenant])
            await connection.execute("SELECT 1 / 0")

        with pytest.raises(psycopg.errors.DivisionByZero):
            await self.store._db.in_transaction(work)


@pytest.mark.timeout(300)
async def test_ten_thousand_mixed_operations_on_two_connections(
    database_url: str, owner_connection: psycopg.Connection
) -> None:
    async with open_store(database_url, pool_size=2) as store:
        await mixed_operations(store, OPERATIONS)
    check_writers(owner_connection)


async def test_a_transaction_pooler_leaks_no_tenant(
    database_url: str, owner_connection: psycopg.Connection
) -> None:
    if pgbouncer.program() is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")
    with pgbouncer.before(database_url) as url:
        async with open_store(url, pool_size=8, prepared_statements=False) as store:
            await mixed_operations(store, OPERATIONS // 10)
    check_writers(owner_connection)


async def mixed_operations(store: PgJobsStore, number_of_operations: int) -> None:
    mine: dict[str, list[UUID]] = {}
    for tenant in TENANTS:
        requests = [new_job() for _ in range(20)]
        with job_tenant_scope(tenant):
            await store.register_idempotent(requests)
        mine[tenant] = [request.job_id for request in requests]
    traffic = Traffic(store, mine)
    numbers = iter(range(number_of_operations))

    async def caller() -> None:
        for number in numbers:
            await traffic.call(number)
            if number % 100 == 0:
                assert await store._db.fetch("SELECT * FROM job_history", {}) == []

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    assert traffic.done == number_of_operations


def check_writers(connection: psycopg.Connection) -> None:
    rows = PgProbe(connection).jobs()
    assert len(rows) == 60
    by = [(row["tenant_id"], row["progress"]["by"]) for row in rows if row["progress"]]
    assert len(by) > 30
    assert all(tenant == writer for tenant, writer in by)


async def test_without_a_tenant_nothing_is_seen_and_nothing_is_written(
    pg_store: PgJobsStore, database_url: str
) -> None:
    request = new_job()
    with pytest.raises(MissingTenant):
        await pg_store.register_idempotent([request])
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([request])
    copied = (
        "INSERT INTO job_history (job_id, tenant_id, job_type, queue, payload, payload_hash, root_job_id)"
    )
    values = "VALUES (gen_random_uuid(), {}, 't', 'q', '{{}}', 'h', gen_random_uuid())"
    with psycopg.connect(database_url, autocommit=True) as connection:
        for setting in ("RESET durable_jobs.tenant_ids", "SET durable_jobs.tenant_ids = ''"):
            connection.execute(setting)
            for table in ("job_history", "job_events", "job_effects"):
                assert connection.execute(f"SELECT * FROM {table}").fetchall() == []
            assert connection.execute("UPDATE job_history SET priority = 1").rowcount == 0
            assert connection.execute("DELETE FROM job_history").rowcount == 0
            for tenant in ("'acme'", "''"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                    connection.execute(f"{copied} {values.format(tenant)}")
        connection.execute("SET durable_jobs.tenant_ids = '{acme,\"\"}'")
        with pytest.raises(psycopg.errors.CheckViolation, match="tenant_id"):
            connection.execute(f"{copied} {values.format(repr(''))}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("UPDATE job_history SET tenant_id = 'other'")


@pytest.mark.parametrize("tenant", ["", "a\x00b", "x" * 256, "\ud800"])
def test_a_tenant_that_cannot_exist_is_refused(tenant: str) -> None:
    with pytest.raises(BadInput, match="tenant"), job_tenant_scope(tenant):
        pass


@pytest.mark.parametrize(
    "tenant", ["{a,b}", 'quo"te', "back\\slash", "a,b", "NULL", "ünïcode", " ", "x" * 255]
)
async def test_any_other_name_is_one_tenant(pg_store: PgJobsStore, tenant: str) -> None:
    with job_tenant_scope(tenant):
        [registered] = await pg_store.register_idempotent([new_job()])
        assert (await pg_store.get(registered.job.job_id)).tenant_id == tenant
        assert len((await pg_store.list_jobs(JobFilter())).jobs) == 1
    assert await pg_store.tenants("any") == [tenant]
    for other in ("a", "b"):
        with job_tenant_scope(other):
            assert (await pg_store.list_jobs(JobFilter())).jobs == []


async def test_the_tenant_travels_with_tasks(pg_store: PgJobsStore) -> None:
    async def registered() -> str:
        [answer] = await pg_store.register_idempotent([new_job()])
        return answer.job.tenant_id

    tasks = []
    for tenant in TENANTS * 5:
        with job_tenant_scope(tenant):
            tasks.append(asyncio.create_task(registered()))
    assert await asyncio.gather(*tasks) == list(TENANTS * 5)
