"""A scrape always answers, whatever has become of the database and of Redis."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from durable_jobs.metrics import Metrics
from durable_jobs.metrics.redis_figures import look_at_redis
from durable_jobs.redis_health import RedisTarget
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from tests.integration.metrics.test_figures import samples
from tests.integration.redis.servers import RedisServer
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.tcp_proxy import proxied

REGISTRY = Registry.of([])
PATIENT = timedelta(seconds=60)


async def state_of_redis(metrics: Metrics) -> str:
    found = samples((await metrics.scrape()).body)["durable_jobs_redis_state"]
    [state] = [dict(labels)["state"] for labels, value in found.items() if value]
    return state


async def test_redis_is_looked_at_beside_the_scrape(database_url: str) -> None:
    with RedisServer("--requirepass", "invented", "--maxmemory", "64mb") as server:
        url = f"redis://:invented@127.0.0.1:{server.port}"
        async with Metrics.from_settings(
            Settings(database_url=database_url, redis_url=url), REGISTRY
        ) as metrics:
            assert await state_of_redis(metrics) == "unknown"
            await eventually(lambda: _is(metrics, "ok"), PATIENT)
            body = (await metrics.scrape()).body
        found = samples(body)
        assert found["durable_jobs_redis_memory_max_bytes"][()] == 64 << 20
        assert found["durable_jobs_redis_memory_used_bytes"][()] > 100_000
        assert 0 < found["durable_jobs_redis_latency_seconds"][()] < 2
        assert b"invented" not in body


async def test_a_redis_that_is_silent_refuses_or_hides_is_told_apart() -> None:
    with RedisServer("--requirepass", "invented") as server:
        wrong = RedisTarget(name="r", url=f"redis://:other@127.0.0.1:{server.port}")
        right = RedisTarget(name="r", url=f"redis://:invented@127.0.0.1:{server.port}")
        assert (await look_at_redis(wrong)).state == "failed"
        server.admin("ACL", "SETUSER", "default", "-info", "-ping", password="invented")
        hidden = await look_at_redis(right, budget=timedelta(seconds=30))
        assert (hidden.state, hidden.used_bytes) == ("ok", None)
        server.freeze()
        try:
            assert (await look_at_redis(right, budget=timedelta(seconds=1))).state == "failed"
        finally:
            server.thaw()


async def _is(metrics: Metrics, state: str) -> bool:
    return await state_of_redis(metrics) == state


async def test_an_outage_of_the_database_is_told_and_ends_by_itself(new_database: Callable[[], Urls]) -> None:
    async with proxied(new_database().application) as database:
        settings = Settings(database_url=database.url, database_timeout="2")
        async with Metrics.from_settings(settings, REGISTRY) as metrics:
            await eventually(lambda: _up(metrics, 1), PATIENT)
            database.cut()
            await eventually(lambda: _up(metrics, 0), PATIENT)
            database.restore()
            await eventually(lambda: _up(metrics, 1), timedelta(minutes=2))
            database.go_silent()
            await eventually(lambda: _up(metrics, 0), PATIENT)
            database.restore()


async def _up(metrics: Metrics, value: float) -> bool:
    return samples((await metrics.scrape()).body)["durable_jobs_up"][()] == value
