"""Is TLS enforced, and is the certificate good? Proved by trying, never by reading the URL."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from durable_jobs.redis_health import tls
from durable_jobs.redis_health.attempts import Handshake, accepts_plaintext, shake_hands
from durable_jobs.redis_health.certificates import check_certificate
from durable_jobs.redis_health.deadline import PROBE_BUDGET, Deadline
from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown
from durable_jobs.redis_health.session import session
from durable_jobs.redis_health.target import HealthLimits, RedisTarget
from durable_jobs.redis_health.trouble import Trouble


@dataclass(frozen=True, slots=True)
class Tried:
    """What the attempts came to; a Trouble where nothing can be told."""

    plaintext: bool | Trouble
    handshake: Handshake | Trouble
    other_port: int | None
    outdated: str | None


async def check_encryption(
    target: RedisTarget, *, limits: HealthLimits | None = None, budget: timedelta = PROBE_BUDGET
) -> list[CheckResult]:
    """Try a plaintext connection, an outdated and a verified one: tls, certificate."""
    deadline = Deadline(budget)
    plaintext = asyncio.ensure_future(_try_plaintext(target, deadline))
    accepted, handshake, other_port, outdated, certificate = await asyncio.gather(
        plaintext,
        _try_handshake(target, deadline, plaintext),
        _find_plaintext_port(target, deadline),
        _try_outdated(target, deadline),
        check_certificate(target, limits or HealthLimits(), deadline),
    )
    return [_judge(target, Tried(accepted, handshake, other_port, outdated)), certificate]


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


async def _try_outdated(target: RedisTarget, deadline: Deadline) -> str | None:
    """The version, when the server still agrees to one older than TLS 1.2."""
    if not target.address.tls:
        return None
    try:
        return (await shake_hands(target.address, deadline, context=tls.outdated_context())).version
    except Trouble:
        return None


def _judge(target: RedisTarget, tried: Tried) -> CheckResult:
    version = tried.handshake.version if isinstance(tried.handshake, Handshake) else None
    if isinstance(tried.plaintext, Trouble):
        trouble = tried.plaintext
        return unknown(CheckName.TLS, trouble.kind, f"plaintext could not be tried: {trouble.reason}")
    open_port = target.address.port if tried.plaintext else tried.other_port
    if open_port:
        return _not_enforced(target, "plaintext_accepted", f"port {open_port} answers in plaintext", version)
    if tried.outdated:
        return _not_enforced(target, "outdated_accepted", f"{tried.outdated} is accepted", version)
    if isinstance(tried.handshake, Trouble) and tried.handshake.kind != "tls_client_certificate":
        # Hanging up on plaintext alone proves nothing: a proxy without a server behind it does it, too.
        return unknown(CheckName.TLS, tried.handshake.kind, f"no TLS handshake: {tried.handshake.reason}")
    return ok(CheckName.TLS, f"{version or 'TLS'}; plaintext is refused", version=version, enforced=True)


def _not_enforced(target: RedisTarget, kind: str, reason: str, version: str | None) -> CheckResult:
    if target.security_required:
        return critical(CheckName.TLS, kind, reason, version=version, enforced=False)
    reason = f"{reason}; {target.environment} does not require TLS"
    return ok(CheckName.TLS, reason, version=version, enforced=False)
