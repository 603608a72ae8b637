"""Runs blocking processors in threads that nobody has to wait for.

A thread whose code does not end must not keep the process from ending, so these are daemons; the pools of
asyncio and anyio are joined at exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread of its own, in the caller's context; a cancelled caller leaves it behind."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        elif isinstance(error, StopIteration):
            answer.set_exception(RuntimeError(f"the processor raised {error!r}"))
        else:
            answer.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function, *args)
        except BaseException as raised:  # noqa: BLE001 -- whatever it is, the loop is to know
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended without this code
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="durable-jobs-processor", daemon=True).start()
    return await answer
