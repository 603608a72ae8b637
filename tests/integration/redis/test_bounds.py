"""A hundred probes of a server that does nothing take two seconds each, leave nothing and hold up nobody."""

from __future__ import annotations

import asyncio
import threading
import time

import psutil

from durable_jobs.redis_health import CheckName, Outcome, RedisTarget, examine
from durable_jobs.redis_health.connection import check_connection
from tests.integration.redis.certificates import Authority
from tests.integration.redis.servers import BUSY, RedisServer
from tests.support.eventually import eventually

PROBES = 100


class Held:
    """The longest that the loop held other work up: by what ran in it, and with what the machine took."""

    def __init__(self) -> None:
        self.computing = 0.0
        self.waiting = 0.0

    async def watch(self) -> None:
        while True:
            wall, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(0)
            self.waiting = max(self.waiting, time.monotonic() - wall)
            self.computing = max(self.computing, time.thread_time() - cpu)
            await asyncio.sleep(0.005)


async def probe(target: RedisTarget) -> tuple[float, str]:
    """One probe: how long it took and how the connection was found."""
    started = time.monotonic()
    connection, *_ = await check_connection(target)
    return time.monotonic() - started, connection.kind


def left_behind() -> tuple[int, int, int]:
    """Threads, descriptors and processes of this process."""
    process = psutil.Process()
    return threading.active_count(), process.num_fds(), len(process.children())


async def probe_a_hundred_times(target: RedisTarget) -> set[str]:
    """Probe all at once: none may be late, nothing may be left, nobody may be held up."""
    await probe(target)
    before, held = left_behind(), Held()
    watching = asyncio.create_task(held.watch())
    probes = await asyncio.gather(*(probe(target) for _ in range(PROBES)))
    watching.cancel()
    # What a busy machine takes away from this process is no delay of the probes'; an unbounded one never ends.
    assert max(seconds for seconds, _ in probes) < 2 + max(2, 3 * held.waiting)
    assert held.computing < 1
    await eventually(lambda: left_behind() == before)
    return {kind for _, kind in probes}


async def test_a_stopped_server_is_silent_a_hundred_times(server: RedisServer) -> None:
    target = RedisTarget(name="test", url=f"redis://:invented@127.0.0.1:{server.port}")
    server.freeze()
    assert await probe_a_hundred_times(target) == {"silent"}
    server.thaw()
    assert (await examine(target))[CheckName.CONNECTION].outcome is Outcome.OK


async def test_a_stopped_tls_server_is_silent_a_hundred_times(authority: Authority) -> None:
    with RedisServer("--requirepass", "invented", tls=authority.server()) as server:
        server.freeze()
        url = f"rediss://:invented@127.0.0.1:{server.port}?ssl_ca_certs={authority.file}"
        assert await probe_a_hundred_times(RedisTarget(name="test", url=url)) == {"silent"}


async def test_looks_at_an_unknown_host_leave_nothing() -> None:
    before = left_behind()
    target = RedisTarget(name="test", url="redis://redis.invalid")
    looks = await asyncio.gather(*(examine(target) for _ in range(20)))
    assert {report[CheckName.CONNECTION].kind for report in looks} == {"unresolved"}
    await eventually(lambda: left_behind() == before)


async def test_a_look_at_everything_takes_no_longer_than_one_probe(authority: Authority) -> None:
    with RedisServer("--requirepass", "invented", tls=authority.server()) as server:
        server.freeze()
        url = f"rediss://:invented@localhost:{server.port}?ssl_ca_certs={authority.file}"
        started = time.monotonic()
        report = await examine(RedisTarget(name="test", url=url))
    assert time.monotonic() - started < 2 + BUSY
    assert report[CheckName.CONNECTION].kind == "silent"
    assert {result.outcome for result in report.results[1:]} == {Outcome.UNKNOWN}
