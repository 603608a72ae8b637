"""One connection to a Redis, in RESP2, that is never trusted to answer.

Each step ends by the deadline and names what happened: a step either returns or raises Trouble. A server's
own words are quoted only by their code, because a server may echo a password in its error text.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass

from durable_jobs.redis_health import tls
from durable_jobs.redis_health.address import RedisAddress
from durable_jobs.redis_health.deadline import Deadline
from durable_jobs.redis_health.lookup import look_up
from durable_jobs.redis_health.trouble import Trouble

_LONGEST = 1 << 20  # bytes of the longest reply that is read; INFO is some 10 kB
_DEEPEST = 8  # levels of arrays in a reply; no reply that is asked for has more than three
_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT}
_TLS_ALERT = b"\x15"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error reply: its code (such as NOAUTH) and its text, which must not be shown."""

    code: str
    text: str


Reply = str | int | list["Reply"] | Refusal | None


class Wire:
    """An open connection; `answered` tells whether anything has come back yet."""

    def __init__(
        self,
        address: RedisAddress,
        deadline: Deadline,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Use `open_wire` instead."""
        self.answered = False
        self._address = address
        self._deadline = deadline
        self._reader = reader
        self._writer = writer
        self._room = 0

    @property
    def ssl_object(self) -> ssl.SSLObject | None:
        """The TLS side of the connection, if it has one."""
        found: ssl.SSLObject | None = self._writer.get_extra_info("ssl_object")
        return found

    async def listen(self, seconds: float) -> Reply:
        """Wait for a word that was not asked for; None when there is none in time.

        Raises:
            Trouble: what came is none of Redis, or an end of the connection.
        """
        try:
            async with asyncio.timeout(min(seconds, self._deadline.left)):
                return await self._hear()
        except TimeoutError:
            return None

    async def ask(self, *words: str) -> Reply:
        """Send one command and wait for its reply.

        Raises:
            Trouble: `silent` or `too_slow`, `closed`, `not_redis`, or a TLS kind.
        """
        parts = [word.encode() for word in words]
        command = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        try:
            async with self._deadline.limit():
                self._writer.write(command)
                reply = await self._hear()
        except TimeoutError:
            raise self._late() from None
        self.answered = True
        return reply

    def close(self) -> None:
        """Drop the connection at once; a farewell could be waited for in vain."""
        self._writer.transport.abort()

    def _late(self) -> Trouble:
        if self.answered:
            return Trouble(
                "too_slow", f"the server answers, but not all that was asked within {self._deadline}"
            )
        return Trouble(
            "silent", f"the server accepts connections but does not answer within {self._deadline}"
        )

    async def _hear(self) -> Reply:
        try:
            await self._writer.drain()
            self._room = _LONGEST
            return await self._read()
        except ssl.SSLError as error:
            raise tls.explain(error, self._address.host, self._address.tls_options.ca_file) from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Trouble("closed", "the server closed the connection instead of answering") from error

    async def _read(self, depth: int = 0) -> Reply:
        if depth > _DEEPEST:
            raise Trouble("not_redis", "the answer is nested too deep for one of Redis")
        try:
            line = await self._reader.readuntil(b"\r\n")
        except asyncio.LimitOverrunError as error:
            raise Trouble("not_redis", "the answer is not one of Redis") from error
        except asyncio.IncompleteReadError as error:
            if error.partial[:1] == _TLS_ALERT:
                raise Trouble("tls_required", "the port speaks TLS, but this connection did not") from error
            raise
        self._take(len(line))
        kind, rest = line[:1], line[1:-2].decode(errors="replace")
        match kind:
            case b"+":
                return rest
            case b"-":
                code, _, text = rest.partition(" ")
                return Refusal(code, text)
            case b":" | b"$" | b"*":
                return await self._read_counted(kind, rest, depth)
        raise Trouble("not_redis", "the answer is not one of Redis")

    async def _read_counted(self, kind: bytes, rest: str, depth: int) -> Reply:
        try:
            count = int(rest)
        except ValueError:
            raise Trouble("not_redis", "the answer is not one of Redis") from None
        if kind == b":":
            return count
        if count < 0:
            return None
        if kind == b"*":
            return [await self._read(depth + 1) for _ in range(count)]
        self._take(count)
        return (await self._reader.readexactly(count + 2))[:-2].decode(errors="replace")

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise Trouble("not_redis", "the answer is too long for one of Redis")


async def open_wire(
    address: RedisAddress, deadline: Deadline, *, context: ssl.SSLContext | None = None
) -> Wire:
    """Connect, with TLS when a context is given.

    Raises:
        Trouble: `unresolved`, `refused`, `unreachable`, `connect_timeout`, or a TLS kind.
    """
    connected = await _connect(address, deadline)
    try:
        reader, writer = await _start(connected, address, deadline, context)
    except BaseException:
        connected.close()
        raise
    return Wire(address, deadline, reader, writer)


async def _start(
    connected: socket.socket, address: RedisAddress, deadline: Deadline, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with deadline.limit():
            return await asyncio.open_connection(
                sock=connected, ssl=context, server_hostname=address.host if context else None, limit=_LONGEST
            )
    except TimeoutError:
        raise Trouble(
            "silent", f"the server accepts connections but does not answer within {deadline}"
        ) from None
    except ssl.SSLEOFError as error:
        raise Trouble("closed", "the server closed the connection during the TLS handshake") from error
    except ssl.SSLError as error:
        raise tls.explain(error, address.host, address.tls_options.ca_file) from error
    except OSError as error:
        raise Trouble("closed", "the server closed the connection during the TLS handshake") from error


async def _connect(address: RedisAddress, deadline: Deadline) -> socket.socket:
    found = await look_up(address.host, deadline)
    trouble = Trouble("unresolved", f"the host name {address.host} has no address")
    for position, ip in enumerate(found):
        try:
            # A share for each address: a silent first one (IPv6, say) must leave time for the next.
            async with deadline.limit(1 / (len(found) - position)):
                return await _connect_to(ip, address.port)
        except TimeoutError:
            trouble = Trouble("connect_timeout", f"no answer from {address.endpoint} within {deadline}")
        except ConnectionRefusedError:
            trouble = Trouble("refused", f"nothing listens on {address.endpoint}: the connection was refused")
        except OSError as error:
            trouble = _unreachable(error, address)
    raise trouble


def _unreachable(error: OSError, address: RedisAddress) -> Trouble:
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    if error.errno in _UNREACHABLE:
        return Trouble("unreachable", f"there is no way to {address.endpoint} ({name})")
    return Trouble("local", f"this process could not open a connection ({name})")


async def _connect_to(ip: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (ip, port))
    except BaseException:
        connection.close()
        raise
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
