"""Prefect's database beside ours, on an embedded server and on somebody else's."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from durable_jobs.deployments import databases
from durable_jobs.embedded import PostgresCluster
from durable_jobs.errors import StoreUnavailable


@pytest.fixture
def cluster() -> Iterator[PostgresCluster]:
    """A server of its own: the database's name is fixed and belongs to the whole server."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        with PostgresCluster(
            Path(folder) / "home", settings={"fsync": "off", "shared_buffers": "16MB"}
        ) as cluster:
            yield cluster


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def owners_url(cluster: PostgresCluster, rights: str) -> str:
    """A role that owns its database `shop`, as an administrator gives one to a team."""
    execute(
        cluster.admin_url(),
        f"CREATE ROLE boss LOGIN {rights} PASSWORD 'invented'",
        "CREATE DATABASE shop OWNER boss",
    )
    return (
        make_url(cluster.admin_url("shop")).set(username="boss", password="invented").render_as_string(False)
    )


def can_use(asyncpg_url: str) -> bool:
    url = make_url(asyncpg_url).set(drivername="postgresql").render_as_string(hide_password=False)
    execute(url, "CREATE TABLE IF NOT EXISTS of_prefect (id int)", "CREATE EXTENSION IF NOT EXISTS pg_trgm")
    return asyncpg_url.startswith("postgresql+asyncpg://")


def test_the_embedded_servers_prefect_has_a_login_of_its_own(cluster: PostgresCluster) -> None:
    for _ in range(2):
        url = databases.prepare_prefect(cluster.admin_url(), "invented", server_is_ours=True)
        assert can_use(url)
        assert make_url(url).username == "prefect_server"


def test_an_owner_who_may_create_databases_lends_its_login(cluster: PostgresCluster) -> None:
    admin_url = owners_url(cluster, "CREATEDB")
    for _ in range(2):
        url = databases.prepare_prefect(admin_url, "unused", server_is_ours=False)
        assert can_use(url)
        assert make_url(url).username == "boss"


def test_an_owner_who_may_not_is_told_what_an_administrator_can_do(cluster: PostgresCluster) -> None:
    admin_url = owners_url(cluster, "")
    with pytest.raises(databases.MayNotCreateDatabase, match='CREATE DATABASE "prefect" OWNER "boss"'):
        databases.prepare_prefect(admin_url, "unused", server_is_ours=False)
    execute(cluster.admin_url(), 'CREATE DATABASE "prefect" OWNER "boss"')
    assert can_use(databases.prepare_prefect(admin_url, "unused", server_is_ours=False))
    assert can_use(databases.prepare_prefect(admin_url, "unused", server_is_ours=False))


def test_the_prefect_database_of_somebody_else_is_left_alone(cluster: PostgresCluster) -> None:
    execute(cluster.admin_url(), "CREATE DATABASE prefect")
    execute(cluster.admin_url("prefect"), "CREATE TABLE flow_run (id int)")
    with pytest.raises(databases.ForeignPrefectDatabase, match="COMMENT ON DATABASE") as refused:
        databases.prepare_prefect(cluster.admin_url("postgres"), "unused", server_is_ours=False)
    execute(cluster.admin_url(), "COMMENT" + str(refused.value).partition("COMMENT")[2])
    databases.prepare_prefect(cluster.admin_url("postgres"), "unused", server_is_ours=False)


def test_the_same_secret_gives_the_same_url(cluster: PostgresCluster, tmp_path: Path) -> None:
    cluster.create_database("durable_jobs")
    secret = databases.kept_secret(tmp_path / "secret")
    first = databases.prepare_application(cluster.admin_url("durable_jobs"), secret)
    assert databases.kept_secret(tmp_path / "secret") == secret
    assert databases.prepare_application(cluster.admin_url("durable_jobs"), secret) == first
    execute(first, "SELECT 1")


def test_a_server_that_is_away_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        databases.prepare_prefect("postgresql://boss:hidden@127.0.0.1:1/shop", "unused", server_is_ours=False)
    assert "hidden" not in str(refused.value)
