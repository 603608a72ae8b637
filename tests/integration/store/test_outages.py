"""The database away in every way: each call ends within its bound, says why, and works again by itself."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from durable_jobs import runtime, sync
from durable_jobs.embedded import PostgresCluster
from durable_jobs.errors import StoreUnavailable
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import JobFilter
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import SETTINGS, Urls
from tests.support.eventually import eventually
from tests.support.jobs import QUEUE, enter, new_job
from tests.support.stores import open_store
from tests.support.tcp_proxy import TcpProxy, proxied

BOUND = timedelta(seconds=4)
SLACK = timedelta(seconds=3.5)
"""What a busy machine may add; less than the bound, so that nobody waits for it twice."""
Call = Callable[[], Awaitable[object]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        cluster = PostgresCluster(Path(folder) / "home", settings=SETTINGS)
        with cluster:
            yield cluster
        cluster.remove()


@pytest.fixture(scope="module")
def own(cluster: PostgresCluster) -> Urls:
    cluster.create_database("jobs")
    admin = cluster.admin_url("jobs")
    migrate(admin)
    return Urls(admin, provision(admin, "pw"))


@pytest.fixture
async def own_store(own: Urls) -> AsyncIterator[PgJobsStore]:
    async with open_store(own.application, timeout=BOUND, pool_size=3) as store:
        yield store


def calls(store: PgJobsStore) -> list[Call]:
    """Return calls of each kind: a write, a read, a transaction, a claim."""
    executor = new_job().job_id
    return [
        lambda: store.register_idempotent([new_job(max_pending=100_000)]),
        lambda: store.tenants("pending", queue=QUEUE),
        lambda: store.list_jobs(JobFilter()),
        lambda: store.claim(executor, "empty", 10),
    ]


async def works(store: PgJobsStore) -> bool:
    with job_tenant_scope("acme"):
        answers = await asyncio.gather(*(call() for call in calls(store)), return_exceptions=True)
    unexpected = [a for a in answers if isinstance(a, Exception) and not isinstance(a, StoreUnavailable)]
    assert unexpected == []
    return not any(isinstance(answer, Exception) for answer in answers)


async def fails_in_time(store: PgJobsStore, why: str, *, at_once: int = 3) -> None:
    """Make calls of each kind; each must end within the bound, with the reason."""
    began = time.monotonic()
    with job_tenant_scope("acme"):
        answers = await asyncio.gather(*(call() for call in calls(store) * at_once), return_exceptions=True)
    took = time.monotonic() - began
    assert [a for a in answers if not isinstance(a, StoreUnavailable)] == []
    assert took < (BOUND + SLACK).total_seconds()
    assert any(why in str(answer) for answer in answers), {str(answer) for answer in answers}
    assert "pw" not in {word for answer in answers for word in str(answer).split()}


async def test_a_restart(cluster: PostgresCluster, own_store: PgJobsStore) -> None:
    assert await works(own_store)
    cluster.stop()
    try:
        await fails_in_time(own_store, "")
        await fails_in_time(own_store, "refused")
    finally:
        cluster.start()
    await eventually(lambda: works(own_store))
    assert await works(own_store)


async def test_one_failing_call_finds_all_broken_connections(own: Urls, own_store: PgJobsStore) -> None:
    async def hold() -> None:
        await own_store._db.fetch("SELECT pg_sleep(1)", {})

    await asyncio.gather(hold(), hold(), hold())
    with psycopg.connect(own.admin, autocommit=True) as owner:
        [*killed] = owner.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'durable-jobs'"
        )
    assert len(killed) > 1
    with pytest.raises(StoreUnavailable):
        await own_store.tenants("any")
    # What the failure set going has ended.
    await eventually(lambda: not own_store._db._abandoned)
    for _ in range(3):
        await own_store.tenants("any")


async def test_a_heart_beats_again_after_a_restart(cluster: PostgresCluster, own_store: PgJobsStore) -> None:
    executor = await enter(own_store)
    heart = own_store.heart(executor)
    assert await asyncio.to_thread(heart.beat)
    cluster.stop()
    try:
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(heart.beat)
    finally:
        cluster.start()
    assert await asyncio.to_thread(heart.beat)
    heart.close()


async def test_who_listens_listens_again_after_a_restart(
    cluster: PostgresCluster, own_store: PgJobsStore
) -> None:
    heard: list[str] = []
    listening = asyncio.create_task(own_store.listen(heard.append, lambda _: None))
    await eventually(lambda: heard == [""])
    cluster.stop()
    cluster.start()
    # What was missed meanwhile is looked for: that is what the empty name says.
    await eventually(lambda: heard == ["", ""])
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_database_that_accepts_no_writes(own: Urls, own_store: PgJobsStore) -> None:
    assert await works(own_store)
    set_for_all(own, "default_transaction_read_only", "on")
    try:
        await eventually(lambda: is_read_only(own_store))
        with job_tenant_scope("acme"), pytest.raises(StoreUnavailable, match="read-only"):
            await own_store.register_idempotent([new_job()])
        with pytest.raises(StoreUnavailable, match="read-only"):
            await enter(own_store)
    finally:
        set_for_all(own, "default_transaction_read_only", "off")
    await eventually(lambda: works(own_store))


async def is_read_only(store: PgJobsStore) -> bool:
    # A reload reaches each connection when its server process next looks; ask all that are in the pool.
    asked = await asyncio.gather(
        *(
            store._db.fetch("SELECT current_setting('transaction_read_only'), pg_sleep(0.1)", {})
            for _ in range(3)
        )
    )
    return all(rows[0][0] == "on" for rows in asked)


def set_for_all(own: Urls, setting: str, value: str) -> None:
    with psycopg.connect(own.admin, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET {setting} = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")


async def test_no_connection_left(own: Urls) -> None:
    role = make_url(own.application).username
    with psycopg.connect(own.admin, autocommit=True) as connection:
        connection.execute(f'ALTER ROLE "{role}" CONNECTION LIMIT 0'.encode())
        try:
            async with open_store(own.application, timeout=BOUND) as store:
                await fails_in_time(store, "too many connections")
                connection.execute(f'ALTER ROLE "{role}" CONNECTION LIMIT -1'.encode())
                await eventually(lambda: works(store))
        finally:
            connection.execute(f'ALTER ROLE "{role}" CONNECTION LIMIT -1'.encode())


@pytest.fixture
async def proxy(own: Urls) -> AsyncIterator[TcpProxy]:
    async with proxied(own.application) as proxy:
        yield proxy


async def test_silence_on_the_wire(own: Urls, proxy: TcpProxy) -> None:
    async with open_store(proxy.url, timeout=BOUND, pool_size=3) as store:
        assert await works(store)
        tasks = len(asyncio.all_tasks())
        proxy.go_silent()
        for _ in range(2):
            await fails_in_time(store, f"did not answer within {BOUND.total_seconds():g} s", at_once=5)
        proxy.restore()
        proxy.reset()
        await eventually(lambda: works(store))
        # Nothing is left behind of the calls that were given up.
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks + 3)


async def test_connections_that_are_cut(own: Urls, proxy: TcpProxy) -> None:
    async with open_store(proxy.url, timeout=BOUND, pool_size=3) as store:
        assert await works(store)
        proxy.reset()
        # One failing call is enough to find all broken connections.
        await eventually(lambda: works(store))
        proxy.cut()
        await fails_in_time(store, "")
        proxy.restore()
        await eventually(lambda: works(store))


async def test_a_heart_is_bounded_too(own: Urls, proxy: TcpProxy) -> None:
    async with open_store(proxy.url, timeout=BOUND) as store:
        executor = await enter(store)
        heart = store.heart(executor)
        assert await asyncio.to_thread(heart.beat)
        proxy.go_silent()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(heart.beat)
        assert time.monotonic() - began < (BOUND + SLACK).total_seconds()
        proxy.restore()
        assert await asyncio.to_thread(heart.beat)
        heart.close()


async def test_a_sync_caller_is_bounded_too(
    own: Urls, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", proxy.url)
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_TIMEOUT", str(BOUND.total_seconds()))
    monkeypatch.setenv("DURABLE_JOBS_MODULES", str(Path(__file__).with_name("declared.py")))
    monkeypatch.setattr(runtime, "_installed", None)
    sync._pool.cache_clear()
    try:
        assert (await asyncio.to_thread(sync.register_job, "STORE_NOTE", {})).state == "PENDING"
        proxy.go_silent()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(sync.register_job, "STORE_NOTE", {})
        assert time.monotonic() - began < (BOUND + SLACK).total_seconds()
        proxy.restore()
        proxy.reset()
        assert (await asyncio.to_thread(sync.register_job, "STORE_NOTE", {})).state == "PENDING"
    finally:
        await asyncio.to_thread(sync._pool().close)
        sync._pool.cache_clear()


async def test_a_wrong_password_is_told_without_it(own: Urls) -> None:
    url = make_url(own.application).set(password="not-the-password").render_as_string(hide_password=False)
    async with open_store(url, timeout=BOUND) as store:
        with pytest.raises(StoreUnavailable, match="password authentication failed") as told:
            await store.tenants("any")
    assert "not-the-password" not in str(told.value)
