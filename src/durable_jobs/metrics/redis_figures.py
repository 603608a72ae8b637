"""How Redis is, in one short look: whether it answers, how fast, and how full it is."""

from __future__ import annotations

import time
from datetime import timedelta

from durable_jobs.metrics.figures import RedisFigures
from durable_jobs.redis_health.deadline import Deadline
from durable_jobs.redis_health.session import read_info, refused, session
from durable_jobs.redis_health.target import RedisTarget
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.wire import Refusal, Wire

BUDGET = timedelta(seconds=2)
UNSEEN = RedisFigures(state="unknown")
_HIDDEN = "hidden"
_NO_RIGHT = "NOPERM"


async def look_at_redis(target: RedisTarget, *, budget: timedelta = BUDGET) -> RedisFigures:
    """Return the figures; ends within the budget whatever the server does, and changes nothing there."""
    deadline = Deadline(budget)
    try:
        async with session(target, deadline) as wire:
            latency = await _ping(wire)
            return RedisFigures(state="ok", latency_s=latency, **await _memory(wire))
    except Trouble:
        return RedisFigures(state="failed")


async def _ping(wire: Wire) -> float:
    began = time.monotonic()
    reply = await wire.ask("PING")
    took = time.monotonic() - began
    # A user without the right to PING got an answer all the same: the server is there.
    if isinstance(reply, Refusal) and reply.code != _NO_RIGHT:
        raise refused(reply)
    return took


async def _memory(wire: Wire) -> dict[str, int]:
    try:
        info = await read_info(wire, "memory")
    except Trouble as trouble:
        if trouble.kind == _HIDDEN:
            return {}
        raise
    found = {"used_bytes": info.get("used_memory", ""), "most_bytes": info.get("maxmemory", "")}
    return {name: int(text) for name, text in found.items() if text.isdecimal()}
