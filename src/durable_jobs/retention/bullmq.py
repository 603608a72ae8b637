"""Purges finished BullMQ jobs from a Redis: completed and failed ones, as BullMQ itself removes them.

Each step is one small script, so a job that is retried meanwhile is either there or gone, never half. A job
that waits, runs or is delayed is in other sets and is never looked at. A failed child for which its parent
still waits is kept, because removing it would set the parent going.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from durable_jobs.redis_health.address import RedisAddress
from durable_jobs.redis_health.announce import HealthStates, reporting_loss
from durable_jobs.redis_health.target import RedisTarget
from durable_jobs.retention.walking import Budget

if TYPE_CHECKING:
    from redis.asyncio import Redis

PREFIX = "pv:jobs"
STEP = 100
"""Jobs of one script."""
FINISHED = ("completed", "failed")
TIMEOUT_S = 5

_PURGE = """
local jobs = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[2], 'LIMIT', ARGV[3], ARGV[4])
local kept = 0
for _, id in ipairs(jobs) do
  local job = ARGV[1] .. id
  local parent, deduplication = unpack(redis.call('HMGET', job, 'parentKey', 'deid'))
  if redis.call('EXISTS', job .. ':lock') == 1
      or (parent and redis.call('SISMEMBER', parent .. ':dependencies', job) == 1) then
    kept = kept + 1
  elseif ARGV[5] == 'purge' then
    if deduplication and redis.call('GET', ARGV[1] .. 'de:' .. deduplication) == id then
      redis.call('DEL', ARGV[1] .. 'de:' .. deduplication, ARGV[1] .. 'dn:' .. deduplication)
    end
    redis.call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed',
               job .. ':unsuccessful')
    redis.call('ZREM', KEYS[1], id)
  end
end
return {#jobs, kept}
"""
_SPECIAL = re.compile(rb"([\\*?\[\]])")


class FinishedCount(NamedTuple):
    """Finished jobs of one queue and state that were old enough."""

    gone: int
    """Purged, or in a dry run due."""
    kept: int
    """Kept because a parent waits for them, or somebody holds them."""
    left: int
    """Due and still there."""


@dataclass
class RedisPurged:
    """What was purged from Redis, by queue and state."""

    endpoint: str | None = None
    """Host and port; None when no Redis is configured, which is no error."""
    counts: dict[tuple[str, str], FinishedCount] = field(default_factory=dict)
    fault: str | None = None
    """Why it could not be done, or not to the end."""

    @property
    def gone(self) -> int:
        """Return how many jobs went."""
        return sum(count.gone for count in self.counts.values())

    @property
    def left(self) -> int:
        """Return how many jobs are due and still there."""
        return sum(count.left for count in self.counts.values())


async def purge_redis(
    target: RedisTarget | None,
    kept_for: timedelta,
    budget: Budget,
    *,
    prefix: str = PREFIX,
    dry_run: bool = False,
    states: HealthStates | None = None,
) -> RedisPurged:
    """Purge jobs that finished longer ago than `kept_for`, by the server's clock.

    A Redis that is away or refuses is told in `fault`, so that it does not keep the database from being purged.
    With the memory of the health checks, `states`, its loss is an event at once.
    """
    purged = RedisPurged(None if target is None else target.address.endpoint)
    if target is None:
        return purged
    from redis.exceptions import RedisError  # the client loads slowly and few configure Redis

    try:
        async with _watched(target, states), _client(target.address) as client:
            before = await _before(client, kept_for)
            async for queue in _queues(client, prefix):
                for state in FINISHED:
                    cleaner = _Cleaner(client, f"{prefix}:{queue}:", state, before)
                    purged.counts[queue, state] = await cleaner.run(budget, dry_run=dry_run)
    except (RedisError, OSError, TimeoutError) as error:
        # The server's own words may repeat a password, so only their kind is passed on.
        purged.fault = f"Redis at {purged.endpoint} could not be purged: {type(error).__name__}"
    return purged


class _Cleaner:
    """Purges one set of finished jobs, from the oldest on."""

    def __init__(self, client: Redis, base: str, state: str, before: int) -> None:
        self._client, self._base, self._before = client, base, before
        self._key = f"{base}{state}"

    async def run(self, budget: Budget, *, dry_run: bool) -> FinishedCount:
        gone = kept = 0
        while not budget.is_over:
            # What is kept stays in front; in a dry run everything does.
            passed = kept + (gone if dry_run else 0)
            seen, held = await self._step(passed, "look" if dry_run else "purge")
            gone, kept = gone + seen - held, kept + held
            if seen < STEP:
                break
        there: Any = await self._client.zcount(self._key, "-inf", f"({self._before}")
        return FinishedCount(gone, kept, 0 if dry_run else int(there) - kept)

    async def _step(self, passed: int, what: str) -> tuple[int, int]:
        answer: Any = await self._client.eval(
            _PURGE, 1, self._key, self._base, str(self._before), str(passed), str(STEP), what
        )
        return int(answer[0]), int(answer[1])


async def _before(client: Redis, kept_for: timedelta) -> int:
    seconds, _ = await client.time()
    return int((seconds - kept_for.total_seconds()) * 1000)


async def _queues(client: Redis, prefix: str) -> AsyncIterator[str]:
    """Names of the queues under the prefix: what has a BullMQ record of its own directly below it."""
    pattern = _SPECIAL.sub(rb"\\\1", prefix.encode()) + b":*:meta"
    seen: set[str] = set()
    async for key in client.scan_iter(pattern, count=1_000, _type="hash"):
        name = key.decode(errors="surrogateescape").removeprefix(f"{prefix}:").removesuffix(":meta")
        # A longer prefix of somebody else's begins like ours; BullMQ allows no colon in a queue's name.
        if ":" not in name and name not in seen:
            seen.add(name)
            yield name


def _watched(target: RedisTarget, states: HealthStates | None) -> AbstractAsyncContextManager[None]:
    return nullcontext() if states is None else reporting_loss(target, states)


@asynccontextmanager
async def _client(address: RedisAddress) -> AsyncIterator[Redis]:
    import ssl

    from redis.asyncio import Redis

    tls = address.tls_options
    options: dict[str, Any] = {}
    if address.tls:
        options = {
            "ssl": True,
            "ssl_ca_certs": None if tls.ca_file is None else str(tls.ca_file),
            "ssl_certfile": None if tls.certificate_file is None else str(tls.certificate_file),
            "ssl_keyfile": None if tls.key_file is None else str(tls.key_file),
            "ssl_cert_reqs": "required" if tls.verify else "none",
            "ssl_check_hostname": tls.verify and tls.check_host_name,
            "ssl_min_version": ssl.TLSVersion.TLSv1_2,
        }
    client = Redis(
        host=address.host,
        port=address.port,
        db=address.db,
        username=address.username,
        password=address.password,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        client_name="durable-jobs",
        **options,
    )
    try:
        yield client
    finally:
        await client.aclose()
