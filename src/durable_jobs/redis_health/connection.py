"""Does the server answer as the target's user, how fast, and in which role?

Down, slow and refused are told apart; being hidden by ACLs is never being down.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from statistics import median

from durable_jobs.redis_health.attempts import accepts_plaintext, hear_refusal, shake_hands
from durable_jobs.redis_health.deadline import PROBE_BUDGET, Deadline
from durable_jobs.redis_health.replication import check_role
from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown, warning
from durable_jobs.redis_health.session import read_info, refused, session
from durable_jobs.redis_health.target import HealthLimits, RedisTarget
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.wire import Refusal, Wire

_PINGS = 3
_NEAR = 0.8  # a latency warning ends below this share of its limit
_FRUITLESS_TLS = {"silent", "closed", "not_tls", "tls_failed"}
_FRUITLESS_PLAINTEXT = {"closed", "tls_required", "not_redis"}


async def check_connection(
    target: RedisTarget, *, limits: HealthLimits | None = None, budget: timedelta = PROBE_BUDGET
) -> list[CheckResult]:
    """Connect, authenticate, measure and look at the role: connection, latency, role, replication."""
    deadline = Deadline(budget)
    plaintext = asyncio.ensure_future(_answers_plaintext(target, deadline))
    try:
        async with session(target, deadline) as wire:
            found = await _measure(wire, deadline, limits or HealthLimits())
            return [*found, *await check_role(wire, target)]
    except Trouble as trouble:
        return _not_connected(await _explain(trouble, target, deadline, plaintext))
    finally:
        plaintext.cancel()
        await asyncio.wait([plaintext])


async def _measure(wire: Wire, deadline: Deadline, limits: HealthLimits) -> list[CheckResult]:
    connected = ok(CheckName.CONNECTION, "connected and answered")
    try:
        seconds = await _ping(wire, deadline)
    except Trouble as trouble:
        if trouble.kind != "too_slow":
            raise
        return [connected, warning(CheckName.LATENCY, "too_slow", trouble.reason)]
    latency, limit = round(seconds * 1000, 3), limits.latency.total_seconds() * 1000
    if latency > limit:
        reason = f"a PING took {latency:g} ms, more than {limit:g} ms"
        return [connected, warning(CheckName.LATENCY, "slow", reason, latency_ms=latency)]
    reason = f"a PING took {latency:g} ms"
    fast = ok(CheckName.LATENCY, reason, latency_ms=latency)
    return [connected, replace(fast, near=latency > limit * _NEAR)]


async def _ping(wire: Wire, deadline: Deadline) -> float:
    clock = asyncio.get_running_loop().time
    times: list[float] = []
    while len(times) < _PINGS and (not times or deadline.left > 2 * times[-1]):
        started = clock()
        reply = await wire.ask("PING")
        times.append(clock() - started)
        # A user without the right to PING got an answer all the same: the server is there.
        if isinstance(reply, Refusal) and reply.code != "NOPERM":
            raise await _explain_refusal(wire, reply)
    return median(times)


async def _explain_refusal(wire: Wire, reply: Refusal) -> Trouble:
    trouble = refused(reply)
    if trouble.kind != "loading":
        return trouble
    try:
        info = await read_info(wire, "persistence")
    except Trouble:
        return trouble
    done, rest = info.get("loading_loaded_perc", "?"), info.get("loading_eta_seconds", "?")
    return Trouble("loading", f"{trouble.reason} ({done} % done, {rest} s left)")


async def _answers_plaintext(target: RedisTarget, deadline: Deadline) -> bool:
    if not target.address.tls:
        return True
    try:
        return await accepts_plaintext(target.address, deadline)
    except Trouble:
        return False


async def _explain(
    trouble: Trouble, target: RedisTarget, deadline: Deadline, plaintext: asyncio.Future[bool]
) -> Trouble:
    """Look whether the URL's scheme is the real reason: each side waits for the other's first word."""
    address = target.address
    if address.tls and trouble.kind in _FRUITLESS_TLS and await plaintext:
        return Trouble("not_tls", f"{address.endpoint} speaks plaintext, but the URL says rediss://")
    if address.tls and trouble.kind == "closed":
        return await hear_refusal(address, deadline) or trouble
    if not address.tls and trouble.kind in _FRUITLESS_PLAINTEXT:
        try:
            await shake_hands(address, deadline)
        except Trouble as other:
            if other.kind != "tls_client_certificate":
                return trouble
        return Trouble("tls_required", f"{address.endpoint} speaks TLS, but the URL says redis://")
    return trouble


def _not_connected(trouble: Trouble) -> list[CheckResult]:
    others = (CheckName.LATENCY, CheckName.ROLE, CheckName.REPLICATION)
    return [
        critical(CheckName.CONNECTION, trouble.kind, trouble.reason),
        *(unknown(check, trouble.kind, f"not connected: {trouble.reason}") for check in others),
    ]
