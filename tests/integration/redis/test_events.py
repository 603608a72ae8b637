"""What changed is recorded as an event, once, whoever looks and however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import redis.asyncio
from psycopg.rows import dict_row

from durable_jobs.embedded.ports import free_port
from durable_jobs.errors import StoreUnavailable
from durable_jobs.redis_health import RedisTarget, announce, examine, report_loss, reporting_loss
from durable_jobs.redis_health.results import CheckName, HealthReport, critical, ok
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres.health import PgHealthStates
from tests.integration.redis.servers import RedisServer

DOWN = critical(CheckName.CONNECTION, "refused", "nothing listens")
UP = ok(CheckName.CONNECTION, "connected")
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def states(database_url: str) -> AsyncIterator[PgHealthStates]:
    """The memory of the checks, as the application's role sees it."""
    async with PgHealthStates.from_settings(Settings.load(database_url=database_url)) as opened:
        yield opened


@pytest.fixture
def target(server: RedisServer) -> RedisTarget:
    """A real Redis, under a name that no other test uses."""
    return RedisTarget(name=f"jobs-{server.port}", url=f"redis://:invented@127.0.0.1:{server.port}")


def events(admin_url: str, target: str) -> list[dict[str, Any]]:
    """What is in the outbox about a target, oldest first."""
    with psycopg.connect(admin_url, row_factory=dict_row) as connection:
        return connection.execute(
            "SELECT * FROM job_events WHERE payload ->> 'target' = %s ORDER BY occurred_at", [target]
        ).fetchall()


def report(target: str, *results: Any) -> HealthReport:
    """A report with these results."""
    return HealthReport(target, "h:6379", "production", START, results)


async def test_t23_t24_a_lost_redis_and_its_recovery_are_recorded_once(
    server: RedisServer, target: RedisTarget, states: PgHealthStates, admin_url: str
) -> None:
    for _ in range(2):
        assert await announce(await examine(target), states) == ()
    server.stop()
    for _ in range(2):
        await announce(await examine(target), states)
    server.start()
    for _ in range(2):
        await announce(await examine(target), states)
    lost, recovered = events(admin_url, target.name)
    assert (lost["event"], lost["severity"]) == ("redis.health.connection_failed", "CRITICAL")
    assert lost["payload"]["kind"] == "refused"
    assert (recovered["event"], recovered["severity"]) == ("redis.health.recovered", "INFO")
    assert [lost["tenant_id"], recovered["tenant_id"]] == [None, None]
    assert "invented" not in f"{lost}{recovered}"


async def test_ten_looks_at_once_say_it_once(
    states: PgHealthStates, database_url: str, admin_url: str
) -> None:
    settings = Settings.load(database_url=database_url)

    async def look() -> int:
        async with PgHealthStates.from_settings(settings) as own:
            return len(await announce(report("contended", DOWN), own))

    assert sorted(await asyncio.gather(*(look() for _ in range(10)))) == [0] * 9 + [1]
    assert len(events(admin_url, "contended")) == 1


async def test_targets_are_remembered_apart(states: PgHealthStates, admin_url: str) -> None:
    await announce(report("one", DOWN), states)
    await announce(report("two", UP), states)
    await announce(report("one", UP), states)
    assert [event["event"] for event in events(admin_url, "one")][1:] == ["redis.health.recovered"]
    assert events(admin_url, "two") == []


async def test_ten_minutes_of_flapping_are_few_rows(states: PgHealthStates, admin_url: str) -> None:
    for look in range(60):
        result = UP if look % 2 else DOWN
        await announce(report("flapping", result), states, now=START + look * timedelta(seconds=10))
    assert len(events(admin_url, "flapping")) <= 6


async def test_whoever_loses_redis_has_the_event_recorded_at_once(
    server: RedisServer, target: RedisTarget, states: PgHealthStates, admin_url: str
) -> None:
    client = redis.asyncio.Redis(port=server.port, password="invented")
    async with client:
        async with reporting_loss(target, states):
            await client.ping()
        server.stop()
        with pytest.raises(redis.exceptions.ConnectionError):
            async with reporting_loss(target, states):
                await client.ping()
    (lost,) = events(admin_url, target.name)
    assert (lost["event"], lost["payload"]["kind"]) == ("redis.health.connection_failed", "refused")


async def test_a_connection_that_only_broke_is_no_loss(
    target: RedisTarget, states: PgHealthStates, admin_url: str
) -> None:
    with pytest.raises(ConnectionResetError):
        async with reporting_loss(target, states):
            raise ConnectionResetError
    assert events(admin_url, target.name) == []


async def test_without_a_database_the_loss_still_reaches_its_caller() -> None:
    target = RedisTarget(name="lost", url=f"redis://127.0.0.1:{free_port()}")
    away = Settings.load(database_url=f"postgresql://u:p@127.0.0.1:{free_port()}/x", database_timeout=2)
    async with PgHealthStates.from_settings(away) as states:
        with pytest.raises(StoreUnavailable):
            await report_loss(target, states)
        with pytest.raises(ConnectionResetError):
            async with reporting_loss(target, states):
                raise ConnectionResetError
