"""A conversation with a Redis as the target's user.

Everything that keeps a client from working (wrong credentials, protected mode, loading) ends it with a
Trouble of its own kind. No error text of the server is passed on: it may echo a password.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from durable_jobs.redis_health import tls
from durable_jobs.redis_health.address import RedisAddress
from durable_jobs.redis_health.deadline import Deadline
from durable_jobs.redis_health.target import RedisTarget
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.wire import Refusal, Wire, open_wire

_TROUBLES = {
    "NOAUTH": ("credentials_missing", "the server wants a password and the target has none"),
    "WRONGPASS": ("wrong_credentials", "the server refused the user or the password of the target"),
    "DENIED": ("protected_mode", "protected mode: the server has no password and serves its own host only"),
    "LOADING": ("loading", "the server is loading its data and serves nobody yet"),
    "MASTERDOWN": (
        "primary_down",
        "this replica has lost its primary and is set to serve nothing until it is back",
    ),
    "BUSY": ("busy", "a script holds the server; it serves nobody until the script ends or is killed"),
}


@asynccontextmanager
async def session(target: RedisTarget, deadline: Deadline) -> AsyncIterator[Wire]:
    """An authenticated connection, dropped at the end.

    Raises:
        Trouble: it could not be had.
    """
    address = target.address
    context = tls.client_context(address.tls_options) if address.tls else None
    wire = await open_wire(address, deadline, context=context)
    try:
        await _authenticate(wire, address)
        yield wire
    finally:
        wire.close()


async def _authenticate(wire: Wire, address: RedisAddress) -> None:
    if not (address.username or address.password):
        return
    words = [address.username] if address.username else []
    reply = await wire.ask("AUTH", *words, address.password or "")
    if not isinstance(reply, Refusal):
        return
    if reply.code == "ERR" and "without any password configured" in reply.text:
        raise Trouble("no_password_set", "the server has no password: it refuses the one of the target")
    raise refused(reply)


def refused(reply: Refusal) -> Trouble:
    """Name what an error reply to a harmless command means."""
    if reply.code in _TROUBLES:
        return Trouble(*_TROUBLES[reply.code])
    if "max number of clients" in reply.text:
        return Trouble("too_many_clients", "the server has as many clients as it takes (maxclients)")
    return Trouble("error_reply", f"the server answered with the error {reply.code}")


async def read_info(wire: Wire, *sections: str) -> dict[str, str]:
    """The fields of INFO.

    Raises:
        Trouble: `hidden` when the user may not see them, or what the connection met.
    """
    reply = await wire.ask("INFO", *sections)
    if isinstance(reply, str):
        lines = (line.partition(":") for line in reply.splitlines() if not line.startswith("#"))
        return {name: value for name, colon, value in lines if colon}
    if isinstance(reply, Refusal) and reply.code in _TROUBLES:
        raise refused(reply)
    code = reply.code if isinstance(reply, Refusal) else "no text"
    raise Trouble("hidden", f"INFO is hidden from this user ({code})")
