"""Whatever was killed, the next start has the committed data."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from durable_jobs.embedded import PostgresCluster
from durable_jobs.embedded.account import server_account
from durable_jobs.embedded.leftovers import PID_FILE, server_pid
from tests.integration.embedded.conftest import FAST
from tests.integration.embedded.test_cluster import kept, put

# A process of its own that starts a cluster, as `durable-jobs up` does, and then only waits to be killed.
OWNER_PROGRAM = """
import sys, time
from pathlib import Path
from durable_jobs.embedded import PostgresCluster
cluster = PostgresCluster(Path(sys.argv[1]), settings={"fsync": "off", "shared_buffers": "16MB"})
cluster.start()
print("started", flush=True)
time.sleep(600)
"""


def family(data: Path) -> list[psutil.Process]:
    server = psutil.Process(server_pid(data.resolve()) or 0)
    return [server, *server.children(recursive=True)]


def kill(cluster: PostgresCluster, processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # the others end by themselves when they miss the first
            process.kill()
    deadline = time.monotonic() + 60
    while cluster.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def killed_owner(home: Path) -> Iterator[PostgresCluster]:
    """The home of a cluster whose owner was killed with -9 while the server went on."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER_PROGRAM, home], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "started\n"
        owner.send_signal(signal.SIGKILL)
    cluster = PostgresCluster(home, settings=FAST)
    yield cluster
    cluster.stop()


def test_a_killed_server_whose_sessions_are_still_going(cluster: PostgresCluster, home: Path) -> None:
    cluster.create_database("work")
    put(cluster, 1)
    with psycopg.connect(cluster.admin_url("work"), autocommit=True) as busy:
        busy.execute("SET statement_timeout = 0")
        kill(cluster, family(home / "data")[:1])
        cluster.start()
    assert kept(cluster) == [1]


def test_every_process_killed_at_once(cluster: PostgresCluster, home: Path) -> None:
    cluster.create_database("work")
    put(cluster, 1)
    kill(cluster, family(home / "data"))
    cluster.start()
    put(cluster, 2)
    assert kept(cluster) == [1, 2]


def test_a_recycled_process_id_in_the_lock_file(cluster: PostgresCluster, home: Path) -> None:
    stale = (home / "data" / PID_FILE).read_text().splitlines()
    kill(cluster, family(home / "data"))
    with subprocess.Popen(["sleep", "600"], **server_account().run_as()) as stranger:
        (home / "data" / PID_FILE).write_text("\n".join([str(stranger.pid), *stale[1:]]) + "\n")
        cluster.start()
        assert stranger.poll() is None
        stranger.kill()
    assert cluster.is_running


def test_a_server_left_running_by_a_killed_owner(killed_owner: PostgresCluster, home: Path) -> None:
    left = server_pid((home / "data").resolve())
    assert left is not None
    killed_owner.start()
    assert server_pid((home / "data").resolve()) not in (None, left)
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


def test_a_killed_initdb_is_begun_again(home: Path) -> None:
    (home / "data.unfinished").mkdir(parents=True)
    (home / "data.unfinished" / "PG_VERSION").write_text("18\n")
    home.chmod(0o711)
    with PostgresCluster(home, settings=FAST) as cluster:
        assert cluster.is_running


def test_ctrl_c_in_the_owners_terminal_does_not_reach_the_server(
    cluster: PostgresCluster, home: Path
) -> None:
    server = server_pid((home / "data").resolve()) or 0
    assert os.getpgid(server) == server != os.getpgid(0)


def test_a_stop_is_a_clean_shutdown(cluster: PostgresCluster, home: Path) -> None:
    with psycopg.connect(cluster.admin_url()):
        began = time.monotonic()
        cluster.stop()
    assert time.monotonic() - began < 30
    assert "database system is shut down" in (home / "postgres.log").read_text()
    cluster.start()
    assert "was interrupted" not in (home / "postgres.log").read_text()
