"""A replica where a primary is expected, a broken link and a server that is loading are named."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durable_jobs.redis_health import (
    CheckName,
    HealthLimits,
    HealthReport,
    Outcome,
    RedisTarget,
    Severity,
    examine,
)
from tests.integration.redis.servers import BUSY, RedisServer


@pytest.fixture
def replica(server: RedisServer) -> Iterator[RedisServer]:
    """A replica of `server` that has copied its data."""
    options = ["--replicaof", "127.0.0.1", str(server.port), "--masterauth", "invented"]
    with RedisServer(*options, "--requirepass", "invented", "--appendonly", "yes") as running:
        wait_for_link(running, "up")
        yield running


def wait_for_link(replica: RedisServer, state: str) -> None:
    """Wait until the replica sees its link in this state."""
    deadline = time.monotonic() + 20
    while replica.admin("INFO", "replication", password="invented")["master_link_status"] != state:
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def look(server: RedisServer, user: str = ":invented@", **options: Any) -> HealthReport:
    """Examine a server, within two seconds."""
    started = time.monotonic()
    target = RedisTarget(name="test", url=f"redis://{user}127.0.0.1:{server.port}", **options)  # type: ignore[arg-type]
    report = await examine(target, limits=HealthLimits(latency=timedelta(seconds=1)))
    assert time.monotonic() - started < 2 + BUSY
    return report


async def test_a_primary_tells_its_replicas(server: RedisServer, replica: RedisServer) -> None:
    report = await look(server)
    assert not report.failures
    assert report[CheckName.REPLICATION].facts["connected_replicas"] == 1


async def test_the_user_of_the_how_to_sees_everything(server: RedisServer) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/watch-redis.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("ACL SETUSER")]
    server.admin(*line.split(), password="invented")
    report = await look(server, "watch:password@", environment="development")
    assert {result.check for result in report.results if result.outcome is not Outcome.OK} == {
        CheckName.CERTIFICATE  # there is none
    }


async def test_a_replica_where_a_primary_is_expected_is_critical_once(replica: RedisServer) -> None:
    report = await look(replica)
    role, writes = report[CheckName.ROLE], report[CheckName.WRITES]
    assert (role.kind, role.severity) == ("unexpected_role", Severity.CRITICAL)
    assert (writes.kind, writes.cause) == ("read_only", CheckName.ROLE)
    assert report[CheckName.CONNECTION].outcome is Outcome.OK


async def test_a_replica_that_is_expected_is_ok(replica: RedisServer) -> None:
    report = await look(replica, expected_role="replica")
    assert not report.failures
    assert report[CheckName.WRITES].kind == "not_tried"


async def test_a_primary_where_a_replica_is_expected_warns(server: RedisServer) -> None:
    role = (await look(server, expected_role="replica"))[CheckName.ROLE]
    assert (role.kind, role.severity) == ("unexpected_role", Severity.WARNING)


async def test_a_broken_replication_link_is_named(server: RedisServer, replica: RedisServer) -> None:
    server.stop()
    wait_for_link(replica, "down")
    report = await look(replica, expected_role="replica")
    link = report[CheckName.REPLICATION]
    assert (link.kind, link.severity) == ("link_down", Severity.CRITICAL)
    assert report[CheckName.CONNECTION].outcome is Outcome.OK


async def test_a_replica_that_serves_nothing_without_its_primary_is_named(
    server: RedisServer, replica: RedisServer
) -> None:
    replica.admin("CONFIG", "SET", "replica-serve-stale-data", "no", password="invented")
    server.stop()
    wait_for_link(replica, "down")
    report = await look(replica, expected_role="replica")
    assert report[CheckName.CONNECTION].kind == "primary_down"


async def test_without_info_the_role_is_asked_for_itself(server: RedisServer, replica: RedisServer) -> None:
    for one in (server, replica):
        one.admin("ACL", "SETUSER", "shy", "on", ">pw", "-@all", "+role", "+ping", password="invented")
    assert (await look(server, "shy:pw@"))[CheckName.REPLICATION].facts["connected_replicas"] == 1
    report = await look(replica, "shy:pw@", expected_role="replica")
    assert report[CheckName.ROLE].facts["role"] == "replica"
    assert report[CheckName.REPLICATION].outcome is Outcome.OK


async def test_with_neither_info_nor_role_it_is_unknown(server: RedisServer) -> None:
    server.admin("ACL", "SETUSER", "shy", "on", ">pw", "-@all", "+ping", password="invented")
    report = await look(server, "shy:pw@")
    assert (report[CheckName.ROLE].outcome, report[CheckName.CONNECTION].outcome) == (
        Outcome.UNKNOWN,
        Outcome.OK,
    )
    assert not report.failures


async def test_a_server_that_is_loading_is_named() -> None:
    with RedisServer("--appendonly", "no") as first:
        first.admin("DEBUG", "POPULATE", "20000")
        first.admin("SAVE")
        snapshot = (first.folder / "dump.rdb").read_bytes()
    loading = RedisServer("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
    (loading.folder / "dump.rdb").write_bytes(snapshot)
    try:
        loading.start(wait_for="Server initialized")
        report = await look(loading, "")
    finally:
        loading.__exit__(None, None, None)
    connection = report[CheckName.CONNECTION]
    assert (connection.kind, connection.severity) == ("loading", Severity.CRITICAL)
    assert "% done" in connection.reason
