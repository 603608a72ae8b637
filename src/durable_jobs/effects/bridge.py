"""One set of steps for `async with` on an event loop and for `with` in a thread.

The steps are coroutines that wait only through a `Bridge`. On the loop it awaits; in a thread it blocks,
so the steps never suspend there and `drive` runs them to their end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from anyio import to_thread

from durable_jobs.effects.effect import Effect
from durable_jobs.effects.policy import Probe, checked_probe_answer, probe_is_async
from durable_jobs.errors import BadInput

T = TypeVar("T")


class Bridge(Protocol):
    """How the steps wait."""

    is_async: bool

    async def on_loop(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call of the store on the loop that the store belongs to."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait a while."""
        ...

    async def ask(self, probe: Probe, effect: Effect) -> bool | None:
        """Ask the provider."""
        ...


class LoopBridge:
    """For an async processor; it may run on another loop than the store's."""

    is_async = True

    def __init__(self, store_loop: asyncio.AbstractEventLoop) -> None:
        """Made by `async with`."""
        self._store_loop = store_loop

    async def on_loop(self, call: Coroutine[Any, Any, T]) -> T:
        """Await it, across loops when need be."""
        if asyncio.get_running_loop() is self._store_loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._store_loop))

    async def pause(self, seconds: float) -> None:
        """Let others run meanwhile."""
        await asyncio.sleep(seconds)

    async def ask(self, probe: Probe, effect: Effect) -> bool | None:
        """Await an async probe; call any other in a thread."""
        return await _asked(probe, effect)


class ThreadBridge:
    """For a processor in a thread: every wait blocks that thread alone."""

    is_async = False

    def __init__(self, store_loop: asyncio.AbstractEventLoop) -> None:
        """Made by `with`.

        Raises:
            BadInput: this thread runs a loop, which `with` would block.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._store_loop = store_loop
            return
        raise BadInput("this code runs on an event loop: use `async with context.effect(...)`")

    async def on_loop(self, call: Coroutine[Any, Any, T]) -> T:
        """Have the store's loop run it, and wait for the answer."""
        return asyncio.run_coroutine_threadsafe(call, self._store_loop).result()

    async def pause(self, seconds: float) -> None:
        """Wait in this thread."""
        time.sleep(seconds)  # noqa: ASYNC251 -- this coroutine is driven in a thread, never on a loop

    async def ask(self, probe: Probe, effect: Effect) -> bool | None:
        """Call it here; an async one on the loop."""
        if probe_is_async(probe):
            return await self.on_loop(_asked(probe, effect))
        return checked_probe_answer(probe(effect))


def drive(steps: Coroutine[Any, Any, T]) -> T:
    """Run steps over a `ThreadBridge`: they never suspend, so one push takes them to their end."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("steps in a thread waited for something that is not theirs")


async def _asked(probe: Probe, effect: Effect) -> bool | None:
    if not probe_is_async(probe):
        return checked_probe_answer(await to_thread.run_sync(probe, effect))
    answer: Any = probe(effect)
    return checked_probe_answer(await answer)
