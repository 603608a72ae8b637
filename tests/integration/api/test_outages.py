"""Postgres away, silent, slow, read-only, out of connections: 503 in time, alive meanwhile, well again by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.integration.api.conftest import WORK
from tests.support.api_server import ApiServer, bearer, served
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy, proxied

ECHO = {"type": "ECHO", "data": {"text": "x"}}
LITTLE_TIME = {"DURABLE_JOBS_API_REQUEST_TIMEOUT": "4"}
PATIENCE = timedelta(seconds=60)
SECRET_WORDS = ("password", "postgresql://", "@127.0.0.1")

pytestmark = pytest.mark.timeout(300)


async def require_away(client: httpx.AsyncClient, *paths: str) -> None:
    """All that needs the store says so within its time; what does not need it goes on."""
    for path in paths or ("/jobs", "/jobs/stats", "/health/ready"):
        began = time.monotonic()
        answer = await client.get(path)
        assert answer.status_code == 503, f"{path}: {answer.status_code} {answer.text}"
        # The bound is 4 s; what is over is the machine's.
        assert time.monotonic() - began < 45
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["content-type"] == "application/problem+json"
        assert not any(word in answer.text for word in SECRET_WORDS)
    posted = await client.post("/jobs", json=ECHO)
    assert posted.status_code == 503
    assert (await client.get("/health/live")).status_code == 200
    assert (await client.get("/openapi.json")).status_code == 200


async def require_back(client: httpx.AsyncClient) -> None:
    async def ready() -> bool:
        return (await client.get("/health/ready")).status_code == 200

    async def accepted() -> bool:
        return (await client.post("/jobs", json=ECHO)).status_code == 202

    await eventually(ready, PATIENCE)
    await eventually(accepted, PATIENCE)


def caller(server: ApiServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, headers=bearer(), timeout=60)


async def test_a_network_that_fails_in_every_way(new_database: Callable[[], Urls]) -> None:
    """The API starts while the database is away, and finds it each time it comes back."""
    async with proxied(new_database().application) as proxy:
        proxy.cut()
        with served(proxy.url, modules=WORK, **LITTLE_TIME) as server:
            async with caller(server) as client:
                await require_away(client)
                proxy.restore()
                await require_back(client)
                breaks: list[Callable[[TcpProxy], Any]] = [
                    lambda broken: broken.cut(),
                    lambda broken: broken.go_silent(),
                    lambda broken: broken.slow_down(timedelta(seconds=30)),
                    lambda broken: broken.reset(),
                ]
                for n, break_it in enumerate(breaks):
                    break_it(proxy)
                    if n < 3:
                        await require_away(client)
                    proxy.restore()
                    proxy.reset()
                    await require_back(client)
                assert not any(word in server.log for word in SECRET_WORDS)


async def test_a_database_that_refuses(new_database: Callable[[], Urls], template_urls: Urls) -> None:
    """Read-only after a failover; too many clients."""
    urls = new_database()
    database = urls.admin.rpartition("/")[2]
    with (
        psycopg.connect(template_urls.admin, autocommit=True) as owner,
        served(urls.application, modules=WORK, **LITTLE_TIME) as server,
    ):

        def change(statement: str) -> None:
            owner.execute(sql.SQL(statement).format(sql.Identifier(database)))
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database],
            )

        async with caller(server) as client:
            await require_back(client)
            # The first list makes the key of cursors.
            assert (await client.get("/jobs")).status_code == 200
            change("ALTER DATABASE {} SET default_transaction_read_only = on")
            await eventually(lambda: refused(client, "/health/ready"), PATIENCE)
            assert (await client.post("/jobs", json=ECHO)).status_code == 503
            # What only reads goes on.
            assert (await client.get("/jobs")).status_code == 200
            change("ALTER DATABASE {} RESET default_transaction_read_only")
            await require_back(client)
            change("ALTER DATABASE {} CONNECTION LIMIT 0")
            await eventually(lambda: refused(client, "/health/ready"), PATIENCE)
            await require_away(client)
            change("ALTER DATABASE {} CONNECTION LIMIT -1")
            await require_back(client)


async def refused(client: httpx.AsyncClient, path: str) -> bool:
    return (await client.get(path)).status_code == 503


@pytest.fixture
def unmigrated(template_urls: Urls) -> Iterator[Urls]:
    """A database without our tables."""
    name = "never_migrated"
    server = template_urls.of("postgres").admin
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield template_urls.of(name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_a_database_of_another_version_is_the_servers_fault(unmigrated: Urls) -> None:
    with served(unmigrated.application, modules=WORK) as server, server.client() as client:
        answer = client.post("/jobs", json=ECHO)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:durable-jobs:problem:not-set-up")
        assert client.get("/health/ready").status_code == 503
        assert client.get("/health/live").status_code == 200
        assert "durable-jobs deploy" in server.log
