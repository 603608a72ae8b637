"""A TCP proxy that can forward, swallow everything without a word, or cut every connection."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import Literal

Mode = Literal["forward", "blackhole", "refuse"]


class Proxy:
    """Stands between a client and a server; use it as an async context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._mode: Mode = "forward"
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.reset()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def become(self, mode: Mode) -> None:
        """Change what happens to bytes and to new connections."""
        self._mode = mode

    def reset(self) -> None:
        """Cut every open connection with RST."""
        for writer in list(self._writers):
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._mode == "refuse":
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            self._writers.add(server_writer)
            await asyncio.gather(self._pump(reader, server_writer), self._pump(server_reader, writer))
        except OSError:
            writer.transport.abort()
        finally:
            self._writers.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self._mode == "forward":
                    writer.write(data)
                    await writer.drain()
        writer.close()
        self._writers.discard(writer)
