"""AUTH is proved by commands that come without a password; an accepted AUTH proves nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from durable_jobs.embedded.ports import free_port
from durable_jobs.redis_health import CheckResult, Outcome, RedisTarget, Severity
from durable_jobs.redis_health.authentication import check_authentication
from tests.integration.redis import peers
from tests.integration.redis.certificates import Authority
from tests.integration.redis.servers import BUSY, RedisServer


async def look(
    port: int, *, url: str = "redis://:invented@127.0.0.1:{}", environment: Any = "production"
) -> CheckResult:
    """Check authentication, within two seconds."""
    started = time.monotonic()
    target = RedisTarget(name="test", url=url.format(port), environment=environment)  # type: ignore[arg-type]
    (result,) = await check_authentication(target)
    assert time.monotonic() - started < 2 + BUSY
    return result


async def test_a_password_that_is_needed_is_enforced(server: RedisServer) -> None:
    result = await look(server.port)
    assert (result.outcome, result.facts["enforced"]) == (Outcome.OK, True)


async def test_t26_an_open_server_in_production_is_critical_even_when_it_accepts_the_password() -> None:
    with RedisServer() as server:
        assert server.admin("AUTH", "default", "anything") is True  # this is why AUTH proves nothing
        result = await look(server.port, url="redis://default:invented@127.0.0.1:{}")
        staging = await look(server.port, environment="staging")
        development = await look(server.port, environment="development")
    assert (result.kind, result.severity) == ("open", Severity.CRITICAL)
    assert staging.severity is Severity.CRITICAL
    assert (development.outcome, development.facts["enforced"]) == (Outcome.OK, False)


async def test_t26_an_open_server_with_tls_is_critical(authority: Authority) -> None:
    with RedisServer(tls=authority.server()) as server:
        result = await look(server.port, url=f"rediss://:x@127.0.0.1:{{}}?ssl_ca_certs={authority.file}")
    assert (result.kind, result.severity) == ("open", Severity.CRITICAL)


@pytest.mark.parametrize(
    ("default_user", "kind", "outcome"),
    [
        ("off nopass ~* +@all", "ok", Outcome.OK),
        ("on nopass ~* -@all +ping", "open", Outcome.FAILED),
        ("on nopass ~* -@all +get", "open", Outcome.FAILED),
        ("on nopass ~* -@all +publish", "default_user_open", Outcome.FAILED),
    ],
)
async def test_the_default_user_is_judged_by_what_it_may_do(
    default_user: str, kind: str, outcome: Outcome
) -> None:
    with RedisServer("--user", "default", *default_user.split()) as server:
        result = await look(server.port)
    assert (result.kind, result.outcome) == (kind, outcome)


async def test_protected_mode_is_no_password() -> None:
    async with peers.saying(b"-DENIED Redis is running in protected mode\r\n") as port:
        result = await look(port)
    assert (result.kind, result.severity) == ("protected_mode", Severity.CRITICAL)


async def test_what_cannot_be_tried_is_unknown(server: RedisServer) -> None:
    assert (await look(free_port())).outcome is Outcome.UNKNOWN
    server.freeze()
    assert (await look(server.port)).kind == "silent"
