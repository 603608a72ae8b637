"""Peers that behave badly: silent, delaying, or saying one fixed thing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _serving(handler: Handler) -> AsyncIterator[int]:
    """Serve on a free port; at the end no conversation is left."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(OSError, asyncio.CancelledError):
            await handler(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks)


@asynccontextmanager
async def delaying(port: int, seconds: float) -> AsyncIterator[int]:
    """A way to a port that holds back each answer."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(delay)
            writer.write(data)
            await writer.drain()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(copy(reader, to_writer, 0), copy(to_reader, writer, seconds))
        finally:
            to_writer.transport.abort()

    async with _serving(pass_on) as own:
        yield own


@asynccontextmanager
async def saying(words: bytes) -> AsyncIterator[int]:
    """A server that says something at once and hangs up; nothing at all means that it stays silent."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not words:
            await asyncio.Event().wait()
        writer.write(words)
        writer.write_eof()
        await reader.read()

    async with _serving(speak) as port:
        yield port


@contextmanager
def unreachable() -> Iterator[int]:
    """A port whose queue of connections is full, so that the next one waits for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            waiting.append(client := socket.socket())
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(listener.getsockname())
        try:
            yield int(listener.getsockname()[1])
        finally:
            for client in waiting:
                client.close()
