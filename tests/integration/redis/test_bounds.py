"""A hundred looks at a server that does nothing take two seconds each, leave nothing and hold up nobody."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import psutil
import pytest

from durable_jobs.redis_health import CheckName, Outcome, RedisTarget, examine
from tests.integration.redis import peers
from tests.integration.redis.certificates import Authority
from tests.integration.redis.servers import RedisServer

LOOKS = 100


async def timed(target: RedisTarget) -> tuple[float, str]:
    """One look: how long it took and how the connection was found."""
    started = time.monotonic()
    report = await examine(target)
    return time.monotonic() - started, report[CheckName.CONNECTION].kind


async def worst_delay(done: asyncio.Event) -> float:
    """The longest that this loop made other work wait."""
    worst = 0.0
    while not done.is_set():
        started = time.monotonic()
        await asyncio.sleep(0.005)
        worst = max(worst, time.monotonic() - started - 0.005)
    return worst


async def look_a_hundred_times(target: RedisTarget) -> set[str]:
    """Look all at once, twice; nothing may be left and nothing may be late."""
    await examine(target)
    process = psutil.Process()
    before = (threading.active_count(), process.num_fds(), len(process.children()))
    done = asyncio.Event()
    watch = asyncio.create_task(worst_delay(done))
    looks = await asyncio.gather(*(timed(target) for _ in range(LOOKS)))
    done.set()
    assert max(seconds for seconds, _ in looks) < 2
    assert await watch < 0.5
    await asyncio.sleep(0)
    assert (threading.active_count(), process.num_fds(), len(process.children())) == before
    return {kind for _, kind in looks}


async def test_a_stopped_server_is_silent_a_hundred_times(server: RedisServer) -> None:
    target = RedisTarget(name="test", url=f"redis://:invented@127.0.0.1:{server.port}")
    server.freeze()
    assert await look_a_hundred_times(target) == {"silent"}
    server.thaw()
    assert (await examine(target))[CheckName.CONNECTION].outcome is Outcome.OK


async def test_a_stopped_tls_server_is_silent_a_hundred_times(authority: Authority) -> None:
    with RedisServer("--requirepass", "invented", tls=authority.server()) as server:
        server.freeze()
        url = f"rediss://:invented@127.0.0.1:{server.port}?ssl_ca_certs={authority.file}"
        assert await look_a_hundred_times(RedisTarget(name="test", url=url)) == {"silent"}


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_a_peer_that_never_speaks_is_silent_a_hundred_times(scheme: str) -> None:
    async with peers.saying(b"") as port:
        # The peer lives in this process, so its side of each connection is counted, too, until it notices.
        looks = await asyncio.gather(
            *(timed(RedisTarget(name="t", url=f"{scheme}://127.0.0.1:{port}")) for _ in range(20))
        )
    assert max(seconds for seconds, _ in looks) < 2
    assert {kind for _, kind in looks} == {"silent"}


async def test_unknown_host_names_leave_nothing() -> None:
    process = psutil.Process()
    target = RedisTarget(name="test", url="redis://redis.invalid")
    before = (threading.active_count(), process.num_fds(), len(process.children()))
    looks = await asyncio.gather(*(timed(target) for _ in range(5)))
    assert {kind for _, kind in looks} == {"unresolved"}
    assert max(seconds for seconds, _ in looks) < 2
    await eventually(lambda: (threading.active_count(), process.num_fds(), len(process.children())) == before)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a condition for five seconds at most."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
