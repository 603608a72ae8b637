"""A cluster on a good day: started, used, stopped, started again."""

import socket
import stat
from pathlib import Path

import psutil
import psycopg
import pytest

from durable_jobs.embedded import (
    CannotStart,
    HomeInUse,
    HomeNotWritable,
    PortTaken,
    PostgresCluster,
    WrongVersion,
)
from durable_jobs.embedded.leftovers import server_pid
from tests.integration.embedded.conftest import FAST


def put(cluster: PostgresCluster, value: int) -> None:
    with psycopg.connect(cluster.admin_url("work")) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value int)")
        connection.execute("INSERT INTO kept VALUES (%s)", [value])


def kept(cluster: PostgresCluster) -> list[int]:
    with psycopg.connect(cluster.admin_url("work")) as connection:
        return [row[0] for row in connection.execute("SELECT value FROM kept ORDER BY value")]


def test_a_stopped_cluster_comes_back_with_its_data_at_the_same_url(cluster: PostgresCluster) -> None:
    cluster.create_database("work")
    cluster.create_database("work")
    put(cluster, 1)
    url = cluster.admin_url("work")
    cluster.stop()
    assert not cluster.is_running
    cluster.start()
    assert cluster.is_running
    assert cluster.admin_url("work") == url
    assert kept(cluster) == [1]


def test_only_passwords_on_the_loopback_address_are_admitted(cluster: PostgresCluster, home: Path) -> None:
    with psycopg.connect(cluster.admin_url()) as connection:
        method = connection.execute("SELECT auth_method FROM pg_hba_file_rules").fetchall()
    assert method == [("scram-sha-256",)]
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        psycopg.connect(f"postgresql://postgres:guess@127.0.0.1:{cluster.port}/postgres")
    server = psutil.Process(server_pid((home / "data").resolve()) or 0)
    assert {(c.laddr.ip, c.laddr.port) for c in server.net_connections()} == {("127.0.0.1", cluster.port)}


def test_the_password_is_in_one_private_file_only(cluster: PostgresCluster, home: Path) -> None:
    file = home / "password"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    password = file.read_text().strip()
    assert len(password) > 30
    server = psutil.Process(server_pid((home / "data").resolve()) or 0)
    assert password not in " ".join(server.cmdline())
    assert password not in (home / "postgres.log").read_text()
    assert [path.name for path in home.iterdir() if path.is_file() and password in path.read_text()] == [
        "password"
    ]


def test_a_kept_port_that_is_taken_is_replaced(cluster: PostgresCluster) -> None:
    first = cluster.port
    cluster.stop()
    with socket.create_server(("127.0.0.1", first or 0)):
        cluster.start()
        assert cluster.port != first


def test_a_wanted_port_that_is_taken_is_named(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} "):
            PostgresCluster(home, port=port, settings=FAST).start()


def test_a_second_cluster_on_the_same_home_is_refused(cluster: PostgresCluster, home: Path) -> None:
    with pytest.raises(HomeInUse, match=f"{home} is in use by process .*--home"):
        PostgresCluster(home, settings=FAST).start()
    assert cluster.is_running
    cluster.stop()
    with PostgresCluster(home, settings=FAST) as second:
        assert second.is_running


def test_a_home_that_cannot_be_made_is_named(home: Path) -> None:
    home.write_text("a file, not a folder")
    with pytest.raises(HomeNotWritable, match=f"{home}.*--home"):
        PostgresCluster(home / "below", settings=FAST).start()


def test_the_servers_own_words_reach_the_error_and_the_home_is_free_again(home: Path) -> None:
    with pytest.raises(CannotStart, match="shared_buffers"):
        PostgresCluster(home, settings={**FAST, "shared_buffers": "nonsense"}).start()
    with PostgresCluster(home, settings=FAST) as cluster:
        assert cluster.is_running


def test_data_of_another_major_version_are_refused(cluster: PostgresCluster, home: Path) -> None:
    cluster.stop()
    (home / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(WrongVersion, match="PostgreSQL 12"):
        cluster.start()


def test_a_lost_password_is_an_error_and_not_an_endless_start(cluster: PostgresCluster, home: Path) -> None:
    cluster.stop()
    (home / "password").unlink()
    with pytest.raises(CannotStart, match="password"):
        cluster.start()


def test_remove_leaves_nothing(home: Path) -> None:
    cluster = PostgresCluster(home, settings=FAST)
    cluster.start()
    data = (home / "data").resolve()
    cluster.remove()
    assert not home.exists()
    assert not data.exists()
