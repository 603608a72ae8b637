"""Things that must not work, tried: a plaintext connection, a command without a password.

No attempt ever sends a credential, so none needs to trust the server's certificate.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace

from durable_jobs.redis_health import tls
from durable_jobs.redis_health.address import RedisAddress
from durable_jobs.redis_health.deadline import Deadline
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.wire import Refusal, Reply, Wire, open_wire

# What a TLS port does to a client that speaks plaintext: it hangs up, with or without an alert.
_TLS_ONLY = {"closed", "tls_required", "not_redis"}
_HEARING_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Handshake:
    """What an (unjudged) TLS handshake showed."""

    version: str
    certificate: tls.Certificate | None


async def accepts_plaintext(address: RedisAddress, deadline: Deadline, *, port: int | None = None) -> bool:
    """Whether a Redis answers to a PING in plaintext, with any reply at all.

    Raises:
        Trouble: it cannot be told (nothing listens, no answer).
    """
    plain = replace(address, tls=False, port=port or address.port)
    try:
        await _ping(plain, deadline)
    except Trouble as trouble:
        if trouble.kind in _TLS_ONLY:
            return False
        raise
    return True


async def _ping(address: RedisAddress, deadline: Deadline) -> None:
    wire = await open_wire(address, deadline)
    try:
        await wire.ask("PING")
    finally:
        wire.close()


async def shake_hands(
    address: RedisAddress, deadline: Deadline, *, context: ssl.SSLContext | None = None
) -> Handshake:
    """A TLS handshake that accepts any certificate, to see version and certificate.

    Raises:
        Trouble: there was none.
    """
    context = context or tls.client_context(address.tls_options, verify=False)
    wire = await open_wire(address, deadline, context=context)
    try:
        return describe(wire)
    finally:
        wire.close()


def describe(wire: Wire) -> Handshake:
    """Version and certificate of a connection with TLS."""
    secured = wire.ssl_object
    if secured is None:
        raise Trouble("not_tls", "the connection has no TLS")
    return Handshake(secured.version() or "unknown", tls.read_certificate(secured))


async def hear_refusal(address: RedisAddress, deadline: Deadline) -> Trouble | None:
    """What a TLS server says after the handshake when nothing is sent to it.

    With TLS 1.3 a client without the certificate that is wanted learns it late, and not at all when it
    writes at once: the reset connection swallows the reason.
    """
    context = tls.client_context(address.tls_options, verify=False)
    try:
        wire = await open_wire(address, deadline, context=context)
        try:
            await wire.listen(_HEARING_SECONDS)
        finally:
            wire.close()
    except Trouble as trouble:
        return trouble
    return None


async def ask_without_password(address: RedisAddress, deadline: Deadline, key: str) -> dict[str, Reply]:
    """What harmless commands get that come without a password.

    Raises:
        Trouble: there was no conversation.
    """
    context = tls.client_context(address.tls_options, verify=False) if address.tls else None
    wire = await open_wire(address, deadline, context=context)
    try:
        replies: dict[str, Reply] = {}
        for words in (("PING",), ("GET", key), ("INFO", "server")):
            replies[words[0]] = reply = await wire.ask(*words)
            if isinstance(reply, Refusal) and reply.code == "DENIED":
                break
        return replies
    finally:
        wire.close()
