"""Is TLS enforced, and is the certificate good? Proved by trying, never by reading the URL."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from durable_jobs.redis_health.attempts import Handshake, accepts_plaintext, shake_hands
from durable_jobs.redis_health.certificates import check_certificate
from durable_jobs.redis_health.deadline import PROBE_BUDGET, Deadline
from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown
from durable_jobs.redis_health.session import session
from durable_jobs.redis_health.target import HealthLimits, RedisTarget
from durable_jobs.redis_health.trouble import Trouble


async def check_encryption(
    target: RedisTarget, *, limits: HealthLimits | None = None, budget: timedelta = PROBE_BUDGET
) -> list[CheckResult]:
    """Try a plaintext connection and a verified one: tls, certificate."""
    deadline = Deadline(budget)
    trying = asyncio.ensure_future(_try_plaintext(target, deadline))
    plaintext, handshake, other_port, certificate = await asyncio.gather(
        trying,
        _try_handshake(target, deadline, trying),
        _find_plaintext_port(target, deadline),
        check_certificate(target, limits or HealthLimits(), deadline),
    )
    return [_judge(target, plaintext, handshake, other_port), certificate]


async def _try_plaintext(target: RedisTarget, deadline: Deadline) -> bool | Trouble:
    try:
        return await accepts_plaintext(target.address, deadline)
    except Trouble as trouble:
        return trouble


async def _find_plaintext_port(target: RedisTarget, deadline: Deadline) -> int | None:
    """Another port of the same server that answers in plaintext, if the server tells of one.

    Only when the server's own TLS port is the target's: behind a port mapping the numbers would lead to
    somebody else's Redis.
    """
    if not target.address.tls:
        return None
    try:
        async with session(target, deadline) as wire:
            match await wire.ask("CONFIG", "GET", "*port"):
                case list(words):
                    ports = dict(zip(words[::2], words[1::2], strict=False))
                case _:
                    return None
        port = int(str(ports.get("port", "0")))
        if str(ports.get("tls-port")) != str(target.address.port) or port in (0, target.address.port):
            return None
        return port if await accepts_plaintext(target.address, deadline, port=port) else None
    except (Trouble, ValueError):
        return None


async def _try_handshake(
    target: RedisTarget, deadline: Deadline, plaintext: asyncio.Future[bool | Trouble]
) -> Handshake | Trouble:
    # A server that speaks plaintext waits for the rest of a handshake for ever: with a redis:// URL this
    # is the rule, so it is asked first.
    if not target.address.tls and await plaintext is not False:
        return Trouble("not_tls", "the server does not speak TLS")
    try:
        return await shake_hands(target.address, deadline)
    except Trouble as trouble:
        return trouble


def _judge(
    target: RedisTarget, plaintext: bool | Trouble, handshake: Handshake | Trouble, other_port: int | None
) -> CheckResult:
    version = handshake.version if isinstance(handshake, Handshake) else None
    if isinstance(plaintext, Trouble):
        return unknown(CheckName.TLS, plaintext.kind, f"plaintext could not be tried: {plaintext.reason}")
    if plaintext:
        return _judge_open(target, target.address.port, version)
    if other_port:
        return _judge_open(target, other_port, version)
    if isinstance(handshake, Trouble) and handshake.kind != "tls_client_certificate":
        # Hanging up on plaintext alone proves nothing: a proxy without a server behind it does it, too.
        return unknown(CheckName.TLS, handshake.kind, f"no TLS handshake: {handshake.reason}")
    return ok(CheckName.TLS, f"{version or 'TLS'}; plaintext is refused", version=version, enforced=True)


def _judge_open(target: RedisTarget, port: int, version: str | None) -> CheckResult:
    reason = f"port {port} answers in plaintext"
    if not target.security_required:
        return ok(
            CheckName.TLS,
            f"{reason}; {target.environment} does not require TLS",
            version=version,
            enforced=False,
        )
    return critical(CheckName.TLS, "plaintext_accepted", reason, version=version, enforced=False)
