"""Finished BullMQ jobs go after their time, as a real BullMQ made them, and nothing else is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import redis

from durable_jobs.embedded.ports import free_port
from durable_jobs.errors import RetentionViolated
from durable_jobs.redis_health import RedisTarget
from durable_jobs.retention import Budget, Periods, RedisPurged, purge_redis, purge_run
from durable_jobs.retention.bullmq import STEP
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from tests.integration.redis.certificates import Authority
from tests.integration.redis.servers import RedisServer
from tests.support.history import add_jobs, rows_of

PASSWORD = "invented"
DAY = timedelta(days=1)
WEEK = 7 * DAY
OLD, YOUNG = 8 * DAY, 6 * DAY + timedelta(hours=20)


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """A client that looks at everything."""
    with redis.Redis(port=server.port, password=PASSWORD, decode_responses=True) as connected:
        yield connected


def bullmq(server: RedisServer, *specs: dict[str, Any]) -> list[dict[str, list[str]]]:
    """Have a real BullMQ make jobs, and return their ids by kind, for each of the specs."""
    common = {"port": server.port, "password": PASSWORD, "prefix": "pv:jobs", "queue": "default"}
    made = subprocess.run(
        [sys.executable, "-m", "tests.support.bullmq_jobs", json.dumps([common | spec for spec in specs])],
        capture_output=True,
        check=True,
        timeout=60,
    )
    ids: list[dict[str, list[str]]] = json.loads(made.stdout)
    return ids


def of(age: timedelta, **spec: Any) -> dict[str, Any]:
    return {"age": age.total_seconds(), **spec}


def target_of(server: RedisServer) -> RedisTarget:
    return RedisTarget(name="test", url=f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0")


async def purge(server: RedisServer, **options: Any) -> RedisPurged:
    return await purge_redis(target_of(server), WEEK, Budget(), **options)


def everything(server: RedisServer) -> dict[str, Any]:
    """Every key with its whole value, as Redis itself would move it elsewhere."""
    with redis.Redis(port=server.port, password=PASSWORD) as raw:
        return {key.decode(): raw.dump(key) for key in raw.scan_iter()}


async def test_completed_and_failed_jobs_over_7_days_go_and_nothing_else(
    server: RedisServer, client: redis.Redis
) -> None:
    old, young, strange, longer = bullmq(
        server,
        of(OLD, completed=3, failed=2, waiting=2, delayed=1, active=1, blocked=1),
        of(YOUNG, queue="other", completed=2, failed=2),
        of(OLD, prefix="pv", queue="jobs", completed=1),
        of(OLD, prefix="pv:jobs:more", completed=1),
    )
    client.set("pv:jobs:default:unrelated", "kept")
    client.zadd("pv:jobs:scores:completed", {"no queue of BullMQ": 0})
    before = everything(server)
    purged = await purge(server)
    assert purged.fault is None
    assert purged.counts["default", "completed"] == (3, 0, 0)
    # The failed child that its parent waits for is kept: removing it would set the parent going.
    assert purged.counts["default", "failed"] == (2, 1, 0)
    assert purged.counts["other", "completed"] == (0, 0, 0)
    after = everything(server)
    gone = {
        f"pv:jobs:default:{job}{end}" for job in old["completed"] + old["failed"] for end in ("", ":logs")
    }
    assert gone <= set(before)
    # Nothing but keys of these jobs, and the set that became empty.
    lost = set(before) - set(after) - {"pv:jobs:default:completed", "pv:jobs:default:stalled-check"}
    assert {key.split(":")[3] for key in lost} == set(old["completed"] + old["failed"])
    changed = {key for key in after if before[key] != after[key]}
    assert changed <= {"pv:jobs:default:failed", "pv:jobs:default:completed"}
    assert "pv:jobs:default:completed" not in after
    assert client.zrange("pv:jobs:default:failed", 0, -1) == [old["blocked"][1]]
    for job in young["completed"] + young["failed"]:
        assert f"pv:jobs:other:{job}" in after
    assert f"pv:jobs:{strange['completed'][0]}" in after
    assert f"pv:jobs:more:default:{longer['completed'][0]}" in after
    assert (await purge(server)).gone == 0


async def test_a_dry_run_counts_and_takes_nothing(server: RedisServer, client: redis.Redis) -> None:
    bullmq(server, of(OLD, completed=2, failed=1))
    before = everything(server)
    purged = await purge(server, dry_run=True)
    assert purged.gone == 3
    assert everything(server) == before
    assert (await purge(server)).gone == 3


async def test_many_go_in_small_steps(server: RedisServer, client: redis.Redis) -> None:
    bullmq(server, of(OLD, completed=1, blocked=1))
    for n in range(3 * STEP):
        client.hset(f"pv:jobs:default:many-{n}", mapping={"name": "work", "finishedOn": 1})
        client.zadd("pv:jobs:default:completed", {f"many-{n}": 1})
    purged = await purge(server)
    assert purged.counts["default", "completed"] == (3 * STEP + 1, 0, 0)
    assert purged.counts["default", "failed"] == (0, 1, 0)
    scripts: Any = client.info("commandstats")
    assert scripts["cmdstat_eval"]["calls"] > 3


async def test_a_job_that_somebody_holds_is_kept(server: RedisServer, client: redis.Redis) -> None:
    [made] = bullmq(server, of(OLD, completed=2))
    held, free = made["completed"]
    client.set(f"pv:jobs:default:{held}:lock", "a worker's token")
    purged = await purge(server)
    assert purged.counts["default", "completed"] == (1, 1, 0)
    assert client.zrange("pv:jobs:default:completed", 0, -1) == [held]
    assert not client.exists(f"pv:jobs:default:{free}")


async def test_a_key_of_deduplication_goes_with_its_job_only(
    server: RedisServer, client: redis.Redis
) -> None:
    [made] = bullmq(server, of(OLD, completed=2))
    mine, other = made["completed"]
    for job in (mine, other):
        client.hset(f"pv:jobs:default:{job}", "deid", f"once-{job}")
    client.set(f"pv:jobs:default:de:once-{mine}", mine)
    client.set(f"pv:jobs:default:de:once-{other}", "a younger job")
    await purge(server)
    assert client.keys("pv:jobs:default:de:*") == [f"pv:jobs:default:de:once-{other}"]


async def test_no_redis_is_no_error_and_one_that_is_away_is_named_without_its_password() -> None:
    assert await purge_redis(None, WEEK, Budget()) == RedisPurged()
    away = RedisTarget(name="test", url=f"redis://me:s3cret@127.0.0.1:{free_port()}/0")
    purged = await purge_redis(away, WEEK, Budget())
    assert purged.fault is not None
    assert purged.fault.endswith("could not be purged: ConnectionError")
    assert "s3cret" not in purged.fault


async def test_a_wrong_password_is_a_fault_too(server: RedisServer) -> None:
    wrong = RedisTarget(name="test", url=f"redis://:wrong@127.0.0.1:{server.port}/0")
    purged = await purge_redis(wrong, WEEK, Budget())
    assert purged.fault is not None
    assert "could not be purged: AuthenticationError" in purged.fault


async def test_tls_and_a_client_certificate_are_used(authority: Authority) -> None:
    with RedisServer("--requirepass", PASSWORD, tls=authority.server()) as secured:
        url = f"rediss://:{PASSWORD}@localhost:{secured.port}/0?ssl_ca_certs={authority.file}"
        purged = await purge_redis(RedisTarget(name="test", url=url), WEEK, Budget())
        assert purged.fault is None
        untrusting = f"rediss://:{PASSWORD}@localhost:{secured.port}/0"
        purged = await purge_redis(RedisTarget(name="test", url=untrusting), WEEK, Budget())
        assert purged.fault is not None


async def test_a_redis_that_is_away_fails_the_purge_after_the_database_was_purged(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection, database_url: str
) -> None:
    add_jobs(owner_connection, 3, 31 * DAY)
    settings = Settings(database_url=database_url, redis_url=f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(RetentionViolated, match=r"Redis at 127\.0\.0\.1"):
        async with purge_run(pg_store, settings, Periods()) as run:
            await run.look()
            await run.purge_db()
            await run.purge_redis()
            await run.verify()
    assert rows_of(owner_connection, "job_history") == 0
    # Whoever loses Redis says so at once; the next look of `redis-health` has nothing new to say.
    said = owner_connection.execute(
        "SELECT event, payload ->> 'kind' FROM job_events WHERE event LIKE 'redis%'"
    )
    assert said.fetchall() == [("redis.health.connection_failed", "refused")]
