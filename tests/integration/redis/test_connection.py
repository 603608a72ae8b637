"""Down, slow, refused, silent, loading and wrong credentials are told apart, each within two seconds."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta

import pytest

from durable_jobs.embedded.ports import free_port
from durable_jobs.redis_health import CheckName, CheckResult, HealthLimits, Outcome, RedisTarget, Severity
from durable_jobs.redis_health.connection import check_connection
from durable_jobs.redis_health.deadline import PROBE_BUDGET, Deadline
from durable_jobs.redis_health.lookup import ask_the_system
from durable_jobs.redis_health.trouble import Trouble
from tests.integration.redis import peers
from tests.integration.redis.servers import BUSY, RedisServer

SHORT = timedelta(seconds=0.8)
"""Enough for a server on this machine; keeps the tests of silence short."""
PATIENT = HealthLimits(latency=timedelta(seconds=1))
"""A busy machine is not what these tests are about."""


async def look(
    url: str, *, budget: timedelta = PROBE_BUDGET, limits: HealthLimits = PATIENT
) -> dict[CheckName, CheckResult]:
    """Check the connection; the answer must come within the budget, two seconds."""
    started = time.monotonic()
    results = await check_connection(RedisTarget(name="test", url=url), limits=limits, budget=budget)
    assert time.monotonic() - started < budget.total_seconds() + BUSY
    return {result.check: result for result in results}


async def look_for_trouble(url: str, *, budget: timedelta = PROBE_BUDGET) -> CheckResult:
    """Check the connection, which must be down; everything else must be unknown."""
    results = await look(url, budget=budget)
    connection = results.pop(CheckName.CONNECTION)
    assert (connection.outcome, connection.severity) == (Outcome.FAILED, Severity.CRITICAL)
    assert {result.outcome for result in results.values()} == {Outcome.UNKNOWN}
    assert {result.kind for result in results.values()} == {connection.kind}
    return connection


async def test_a_good_server_is_connected_with_its_latency(server: RedisServer) -> None:
    results = await look(f"redis://:invented@127.0.0.1:{server.port}")
    assert {result.outcome for result in results.values()} == {Outcome.OK}
    assert 0 < float(results[CheckName.LATENCY].facts["latency_ms"] or 0) < 1000


async def test_a_host_name_is_looked_up(server: RedisServer) -> None:
    results = await look(f"redis://:invented@localhost:{server.port}")
    assert results[CheckName.CONNECTION].outcome is Outcome.OK


async def test_nothing_listening_is_refused() -> None:
    assert (await look_for_trouble(f"redis://127.0.0.1:{free_port()}")).kind == "refused"


async def test_a_stopped_process_is_silent(server: RedisServer) -> None:
    server.freeze()
    url = f"redis://:invented@127.0.0.1:{server.port}"
    assert (await look_for_trouble(url)).kind == "silent"
    server.thaw()
    assert (await look(url))[CheckName.CONNECTION].outcome is Outcome.OK


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_accepting_without_a_word_is_silent(scheme: str) -> None:
    async with peers.saying(b"") as port:
        assert (await look_for_trouble(f"{scheme}://127.0.0.1:{port}", budget=SHORT)).kind == "silent"


async def test_no_answer_to_the_connection_itself_is_a_connect_timeout() -> None:
    with peers.unreachable() as port:
        assert (await look_for_trouble(f"redis://127.0.0.1:{port}", budget=SHORT)).kind == "connect_timeout"


async def test_an_unknown_host_name_is_unresolved() -> None:
    assert (await look_for_trouble("redis://redis.invalid:6379")).kind == "unresolved"


async def test_a_silent_name_server_is_given_up_and_leaves_no_process() -> None:
    started = time.monotonic()
    hanging = (sys.executable, "-c", "import time; print(flush=True); time.sleep(60)")
    with pytest.raises(Trouble, match="no name server answered") as caught:
        await ask_the_system("redis.example", Deadline(SHORT), command=hanging)
    assert caught.value.kind == "unresolved"
    assert time.monotonic() - started < SHORT.total_seconds() + BUSY


async def test_a_slow_server_is_connected_and_its_latency_warns(server: RedisServer) -> None:
    async with peers.delaying(server.port, 0.2) as port:
        results = await look(f"redis://:invented@127.0.0.1:{port}", limits=HealthLimits())
    assert results[CheckName.CONNECTION].outcome is Outcome.OK
    latency = results[CheckName.LATENCY]
    assert (latency.outcome, latency.kind, latency.severity) == (Outcome.FAILED, "slow", Severity.WARNING)
    assert 200 <= float(latency.facts["latency_ms"] or 0) < 1000


async def test_a_server_too_slow_to_finish_is_connected_and_its_latency_warns(server: RedisServer) -> None:
    async with peers.delaying(server.port, 0.9) as port:
        results = await look(f"redis://:invented@127.0.0.1:{port}")
    assert results[CheckName.CONNECTION].outcome is Outcome.OK
    assert (results[CheckName.LATENCY].kind, results[CheckName.ROLE].kind) == ("too_slow", "too_slow")


async def test_a_latency_of_three_seconds_is_no_answer(server: RedisServer) -> None:
    async with peers.delaying(server.port, 3) as port:
        assert (await look_for_trouble(f"redis://:invented@127.0.0.1:{port}")).kind == "silent"


async def test_just_under_the_limit_is_ok_but_near(server: RedisServer) -> None:
    async with peers.delaying(server.port, 0.085) as port:
        url = f"redis://:invented@127.0.0.1:{port}"
        latency = (await look(url, limits=HealthLimits()))[CheckName.LATENCY]
    assert latency.near is (latency.outcome is Outcome.OK)


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        (":wrong@", "wrong_credentials"),
        ("nobody:invented@", "wrong_credentials"),
        ("", "credentials_missing"),
    ],
)
async def test_wrong_credentials_are_their_own_kind(server: RedisServer, credentials: str, kind: str) -> None:
    assert (await look_for_trouble(f"redis://{credentials}127.0.0.1:{server.port}")).kind == kind


async def test_a_password_where_the_server_has_none_is_its_own_kind() -> None:
    with RedisServer() as server:
        found = await look_for_trouble(f"redis://:invented@127.0.0.1:{server.port}")
    assert found.kind == "no_password_set"


async def test_a_password_that_the_server_echoes_is_not_passed_on() -> None:
    with RedisServer("--rename-command", "AUTH", "") as server:
        found = await look_for_trouble(f"redis://alice:s3cr3t-w0rd@127.0.0.1:{server.port}")
    assert found.kind == "error_reply"
    assert "s3cr3t" not in str(found)
    assert "alice" not in str(found)


async def test_protected_mode_is_named() -> None:
    denial = b"-DENIED Redis is running in protected mode because protected mode is enabled\r\n"
    async with peers.saying(denial) as port:
        assert (await look_for_trouble(f"redis://127.0.0.1:{port}")).kind == "protected_mode"


@pytest.mark.parametrize(
    "words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$99999999999\r\n", b"*x\r\n", b"?" * 2_000_000]
)
async def test_another_service_on_the_port_is_not_redis(words: bytes) -> None:
    async with peers.saying(words) as port:
        assert (await look_for_trouble(f"redis://127.0.0.1:{port}")).kind == "not_redis"


@pytest.mark.parametrize(
    "words",
    [b"*1\r\n" * 20_000, b"*9\r\n" + b"$400000\r\n%s\r\n" % (b"x" * 400_000) * 9, b"$999999999\r\n"],
    ids=["nested", "many parts", "one part"],
)
async def test_an_answer_without_an_end_is_not_redis(words: bytes) -> None:
    async with peers.saying(words) as port:
        assert (await look_for_trouble(f"redis://127.0.0.1:{port}")).kind == "not_redis"


async def test_too_many_clients_are_named() -> None:
    with RedisServer("--maxclients", "1") as server:
        _, held = await asyncio.open_connection("127.0.0.1", server.port)
        found = await look_for_trouble(f"redis://127.0.0.1:{server.port}")
        held.close()
    assert found.kind == "too_many_clients"


async def test_a_user_who_may_not_ping_is_connected() -> None:
    with RedisServer(*["--user", "shy", "on", ">invented", "~*", "-@all", "+info"]) as server:
        results = await look(f"redis://shy:invented@127.0.0.1:{server.port}")
    assert results[CheckName.CONNECTION].outcome is Outcome.OK
    assert results[CheckName.LATENCY].outcome is Outcome.OK


async def test_a_busy_script_is_named() -> None:
    with RedisServer("--busy-reply-threshold", "1") as server:
        script = asyncio.create_task(
            asyncio.to_thread(server.admin, "EVAL", "local n = 0 while n < 2e9 do n = n + 1 end", "0")
        )
        found = None
        while not script.done() and (found is None or found.kind != "busy"):
            found = (await look(f"redis://127.0.0.1:{server.port}"))[CheckName.CONNECTION]
        assert found is not None
        assert found.kind == "busy"
        server.admin("SCRIPT", "KILL")
        with pytest.raises(Exception, match=r"[Ss]cript killed"):
            await script


async def test_a_silent_first_address_leaves_time_for_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(_host: str, _deadline: Deadline) -> list[str]:
        return ["127.0.0.1", "127.0.0.2"]

    monkeypatch.setattr("durable_jobs.redis_health.wire.look_up", both)
    with peers.unreachable() as port, RedisServer("--bind", "127.0.0.2", "--port", str(port)):
        results = await look(f"redis://redis.example:{port}")
    assert results[CheckName.CONNECTION].outcome is Outcome.OK
