"""The flow, end to end: block or settings, real Redis, real Prefect server, artifact, events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from prefect import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort
from psycopg.rows import dict_row

from durable_jobs.blocks.redis_target import RedisTargetBlock
from durable_jobs.deployments.block_types import offer_block_types
from durable_jobs.embedded.ports import free_port
from durable_jobs.flows.redis_health import redis_health
from durable_jobs.redis_health import InsecureRedisURL, InvalidRedisTarget
from tests.integration.redis.certificates import Authority
from tests.integration.redis.servers import RedisServer

pytestmark = pytest.mark.usefixtures("prefect_harness")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    """The database of this test, and no Redis yet."""
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", database_url)
    monkeypatch.delenv("DURABLE_JOBS_REDIS_URL", raising=False)
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", "development")


@pytest.fixture
def secured(authority: Authority) -> Iterator[RedisServer]:
    """A Redis as production wants it."""
    with RedisServer("--requirepass", "invented", "--appendonly", "yes", tls=authority.server()) as running:
        yield running


async def artifact() -> Any:
    """The newest artifact of the flow."""
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=["redis-health"]))
    async with get_client() as client:
        return (await client.read_artifacts(artifact_filter=wanted, sort=ArtifactSort.CREATED_DESC, limit=1))[
            0
        ]


def event_names(admin_url: str, target: str) -> list[str]:
    """Names of the events about a target, oldest first."""
    with psycopg.connect(admin_url, row_factory=dict_row) as connection:
        rows = connection.execute(
            "SELECT event FROM job_events WHERE payload ->> 'target' = %s ORDER BY occurred_at", [target]
        ).fetchall()
    return [row["event"].removeprefix("redis.health.") for row in rows]


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    """Outcome of each check of one report."""
    return {entry["check"]: entry["outcome"] for entry in report["checks"]}


async def test_t28_the_flow_checks_a_secured_redis_of_a_block_end_to_end(
    secured: RedisServer, authority: Authority, admin_url: str
) -> None:
    name = f"secured-{uuid4().hex[:8]}"
    block = RedisTargetBlock(
        host="127.0.0.1",
        port=secured.port,
        password="invented",
        ssl=True,
        environment="production",
        ca_file=authority.file,
    )
    await block.asave(name)
    (report,) = await redis_health(targets=[name])
    assert set(outcomes(report).values()) == {"ok"}
    assert len(outcomes(report)) == 11
    assert event_names(admin_url, name) == []
    shown = await artifact()
    assert (shown.type, name in shown.data, "invented" in f"{shown.data}{shown.description}") == (
        "table",
        True,
        False,
    )


async def test_t28_losing_and_regaining_it_is_said_once_each(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, admin_url: str
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_REDIS_URL", f"redis://:invented@127.0.0.1:{server.port}")
    (report,) = await redis_health()
    target = report["target"]
    assert report["healthy"]
    server.stop()
    (down,) = await redis_health()
    await redis_health()
    server.start()
    await redis_health()
    assert outcomes(down) == {"connection": "failed"} | {
        check: "unknown" for check in outcomes(down) if check != "connection"
    }
    assert event_names(admin_url, target) == ["connection_failed", "recovered"]


async def test_t25_t26_an_open_redis_in_production_raises_both_alarms(
    admin_url: str,
) -> None:
    name = f"open-{uuid4().hex[:8]}"
    with RedisServer("--appendonly", "yes") as server:
        await RedisTargetBlock(host="127.0.0.1", port=server.port, environment="production").asave(name)
        await redis_health(targets=[name])
    assert sorted(event_names(admin_url, name)) == ["auth_disabled", "tls_disabled"]


async def test_several_targets_are_watched_by_name(server: RedisServer, admin_url: str) -> None:
    up, down = f"up-{uuid4().hex[:8]}", f"down-{uuid4().hex[:8]}"
    await RedisTargetBlock(host="127.0.0.1", port=server.port, password="invented").asave(up)
    await RedisTargetBlock(connection_url=f"redis://127.0.0.1:{free_port()}").asave(down)
    reports = await redis_health(targets=[up, down])
    assert [(report["target"], report["healthy"]) for report in reports] == [(up, True), (down, False)]
    assert event_names(admin_url, down) == ["connection_failed"]


async def test_without_redis_the_flow_says_so_and_is_no_error() -> None:
    assert await redis_health() == []
    shown = await artifact()
    assert "DURABLE_JOBS_REDIS_URL" in shown.data


async def test_a_block_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidRedisTarget, match="redis-target/nothing"):
        await redis_health(targets=["nothing"])


async def test_t6_the_flow_refuses_an_insecure_url_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", "production")
    monkeypatch.setenv("DURABLE_JOBS_REDIS_URL", "redis://127.0.0.1")
    with pytest.raises(InsecureRedisURL, match="DURABLE_JOBS_REDIS_URL"):
        await redis_health()


async def test_the_form_of_the_block_is_offered() -> None:
    for _ in range(2):
        await offer_block_types()
    async with get_client() as client:
        block_type = await client.read_block_type_by_slug("redis-target")
        schemas = await client.read_block_schemas()
    (fields,) = [schema.fields for schema in schemas if schema.block_type_id == block_type.id]
    assert {"host", "password", "ssl", "environment", "expected_role", "verify"} <= set(fields["properties"])
