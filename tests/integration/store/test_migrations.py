"""The schema comes and goes, on an empty database and on one in use, also on the oldest Postgres."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from durable_jobs.embedded.ports import free_port
from durable_jobs.errors import SchemaOutdated, StoreUnavailable
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import Urls
from tests.support.jobs import QUEUE, enter, failed, new_job
from tests.support.stores import open_store

OLDEST = Path("/usr/lib/postgresql/15/bin")
_OBJECTS = """
SELECT 'table', relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')
UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'policy', polname || ' on ' || polrelid::regclass FROM pg_policy ORDER BY 1, 2
"""


def objects(url: str) -> list[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return connection.execute(_OBJECTS).fetchall()


async def use(store: PgJobsStore) -> None:
    """Take a job through its life."""
    executor = await enter(store)
    with job_tenant_scope("acme"):
        [registered] = await store.register_idempotent([new_job(max_pending=10, idempotency_key="k")])
        [job] = (await store.claim(executor, QUEUE, 10)).jobs
        await store.finish([failed(job)])
        child = await store.retry(job.job_id, max_pending=10)
        assert (await store.get(registered.job.job_id)).state is JobState.RETRIED
        assert await store.claim_job(executor, "acme", child.job_id) is not None
    assert await store.tenants("running") == ["acme"]


async def test_up_down_and_up_again_on_a_database_in_use(new_database: Callable[[], Urls]) -> None:
    urls = new_database()
    before = objects(urls.admin)
    async with open_store(urls.application) as store:
        await use(store)
        migrate(urls.admin)
        assert objects(urls.admin) == before
        migrate(urls.admin, "base")
        assert [name for kind, name in objects(urls.admin) if kind != "table"] == []
        left = {name for _, name in objects(urls.admin)}
        assert left <= {"durable_jobs_version", "durable_jobs_version_pkc"}
        with pytest.raises(SchemaOutdated, match=r"durable-jobs deploy"):
            await store.open(environment="production")
        with pytest.raises(SchemaOutdated):
            await store.tenants("any")
        migrate(urls.admin)
        assert objects(urls.admin) == before
        own = provision(urls.admin, "pw")
    async with open_store(own) as store:
        await store.open(environment="production")
        await use(store)


async def test_a_database_that_was_never_migrated_is_refused(new_database: Callable[[], Urls]) -> None:
    urls = new_database()
    migrate(urls.admin, "base")
    with psycopg.connect(urls.admin, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS durable_jobs_version")
    store = open_store(urls.application)
    with pytest.raises(SchemaOutdated):
        await store.open(environment="development")
    await store.close()


def test_an_upgraded_database_has_the_functions_of_a_fresh_one(new_database: Callable[[], Urls]) -> None:
    urls = new_database()
    fresh = objects(urls.admin)
    older = (
        # The same name with other arguments, the same arguments with another result, a name that is gone.
        "CREATE FUNCTION fail_overdue(p_margin interval) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "DROP FUNCTION held_jobs(uuid)",
        "CREATE FUNCTION held_jobs(p_executor uuid) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION long_gone() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "COMMENT ON FUNCTION long_gone() IS 'durable-jobs'",
        "CREATE FUNCTION somebody_elses() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "COMMENT ON TABLE durable_jobs_version IS 'another'",
    )
    with psycopg.connect(urls.admin, autocommit=True) as connection:
        for statement in older:
            connection.execute(statement)
    migrate(urls.admin)
    assert set(objects(urls.admin)) - set(fresh) == {("function", "somebody_elses()")}
    assert set(fresh) <= set(objects(urls.admin))


async def test_functions_of_another_version_are_refused(new_database: Callable[[], Urls]) -> None:
    urls = new_database()
    with psycopg.connect(urls.admin, autocommit=True) as connection:
        connection.execute("COMMENT ON TABLE durable_jobs_version IS 'another'")
    store = open_store(urls.application)
    with pytest.raises(SchemaOutdated, match="functions of another version"):
        await store.open(environment="production")
    migrate(urls.admin)
    await store.open(environment="production")
    await store.close()


def test_four_migrations_at_once_are_one(new_database: Callable[[], Urls]) -> None:
    urls = new_database()
    expected = objects(urls.admin)
    migrate(urls.admin, "base")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(migrate, [urls.admin] * 4))
    assert objects(urls.admin) == expected


def test_a_database_that_is_away_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://someone:secret@127.0.0.1:{taken.getsockname()[1]}/jobs"
        with pytest.raises(StoreUnavailable, match="does not answer") as told:
            migrate(url)
    assert "secret" not in str(told.value)


@pytest.fixture
def oldest() -> Iterator[str]:
    """The superuser's URL of a Postgres 15."""
    if not (OLDEST / "initdb").exists():
        pytest.skip(f"no Postgres 15 under {OLDEST} (apt-get install postgresql-15)")
    account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, secret = folder / "data", folder / "secret"
        secret.write_text("pw")
        for path in (folder, secret):
            if account is not None:
                os.chown(path, account.pw_uid, account.pw_gid)
        as_account = {"user": account.pw_uid, "group": account.pw_gid} if account else {}

        def run(*command: object) -> None:
            subprocess.run(
                [str(part) for part in command], check=True, stdout=subprocess.DEVNULL, **as_account
            )

        initdb = (
            "-D",
            data,
            "-U",
            "owner",
            "-A",
            "scram-sha-256",
            "--pwfile",
            secret,
            "-E",
            "UTF8",
            "--no-sync",
        )
        run(OLDEST / "initdb", *initdb)
        port = free_port()
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        run(OLDEST / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://owner:pw@127.0.0.1:{port}/postgres"
        finally:
            run(OLDEST / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
            shutil.rmtree(data, ignore_errors=True)


async def test_the_oldest_postgres_will_do_with_an_owner_that_is_no_superuser(oldest: str) -> None:
    with psycopg.connect(oldest, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN CREATEROLE PASSWORD 'pw'")
        connection.execute("CREATE DATABASE jobs OWNER plain")
    with psycopg.connect(oldest.replace("/postgres", "/jobs"), autocommit=True) as connection:
        connection.execute("ALTER SCHEMA public OWNER TO plain")
    admin = oldest.replace("owner:pw", "plain:pw").replace("/postgres", "/jobs")
    migrate(admin)
    async with open_store(provision(admin, "pw")) as store:
        await store.open(environment="production")
        await use(store)
    migrate(admin, "base")
    migrate(admin)
