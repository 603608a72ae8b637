"""A TCP proxy in front of a server that fails as networks do: silent, cut, slow, or losing one answer.

It can also answer in the server's place, as what stands before a server does that is overloaded.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from socket import SO_LINGER, SOL_SOCKET

from sqlalchemy import make_url

READY_FOR_QUERY = b"Z\x00\x00\x00\x05I"
"""Ends every answer of Postgres: the statement is done, and committed."""


class TcpProxy:
    """Passes connections on to one server, until it is told otherwise."""

    def __init__(self, url: str, end_of_answer: bytes = READY_FOR_QUERY) -> None:
        self._url = make_url(url)
        self._end_of_answer = end_of_answer
        self._passing = asyncio.Event()
        self._passing.set()
        self._refusing = False
        self._delay = timedelta(0)
        self._loses_answer_to: bytes | None = None
        self._swallows: bytes | None = None
        self._response: bytes | None = None
        self._deaf: set[asyncio.StreamWriter] = set()
        self.lost_answers = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The server's URL, through this proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return self._url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def go_silent(self) -> None:
        """Hold everything back, old connections and new ones: nothing fails, nothing answers."""
        self._passing.clear()

    def forget_open_connections(self) -> None:
        """Let the connections that are open now stay open, and pass nothing on for them ever again."""
        self._deaf |= self._writers

    def answer(self, response: bytes) -> None:
        """Pass nothing on: give this answer to whatever is sent, and close."""
        self._response = response

    def swallow(self, text: str) -> None:
        """From now on never answer a statement with this text."""
        self._swallows = text.encode()

    def cut(self) -> None:
        """Reset every connection, and each new one."""
        self._refusing = True
        self.reset()

    def reset(self) -> None:
        """Reset the connections that are open; new ones pass."""
        for writer in list(self._writers):
            # At once, without the good-bye of a server that closes.
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def restore(self) -> None:
        """Pass everything on again, also what was held back."""
        self._refusing = False
        self._response = None
        self._delay = timedelta(0)
        self._passing.set()

    def slow_down(self, delay: timedelta) -> None:
        """Hold every statement back for so long."""
        self._delay = delay

    def lose_the_answer_to(self, text: str) -> None:
        """Let the next statement with this text pass, and reset its connection instead of answering."""
        self._loses_answer_to = text.encode()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.restore()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not self._refusing:
            await self._passing.wait()
        if self._refusing:
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection(self._url.host, self._url.port)
        pair = {writer, up_writer}
        self._writers |= pair
        loses = asyncio.Event()
        both = [
            asyncio.create_task(self._to_server(reader, writer, up_writer, loses)),
            asyncio.create_task(self._to_client(up_reader, writer, loses)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= pair
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            for one in pair:
                one.transport.abort()

    async def _to_server(
        self,
        reader: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
        loses: asyncio.Event,
    ) -> None:
        while data := await reader.read(65536):
            if self._response is not None:
                client.write(self._response)
                await client.drain()
                client.close()
                return
            if self._loses_answer_to is not None and self._loses_answer_to in data:
                self._loses_answer_to = None
                loses.set()
            if self._swallows is not None and self._swallows in data:
                self._deaf.add(writer)
            if self._delay:
                await asyncio.sleep(self._delay.total_seconds())
            await self._pass(data, writer)

    async def _to_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if loses.is_set():
                if data.endswith(self._end_of_answer):
                    self.lost_answers += 1
                    return
                continue
            await self._pass(data, writer)

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        if writer not in self._deaf:
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxied(url: str, *, end_of_answer: bytes = READY_FOR_QUERY) -> AsyncIterator[TcpProxy]:
    """Run a proxy in front of a server for the block; `end_of_answer` ends what the server says."""
    proxy = TcpProxy(url, end_of_answer)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
