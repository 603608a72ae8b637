"""Wait for a condition, never for a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    condition: Callable[[], T | Awaitable[T]],
    deadline: timedelta = timedelta(seconds=60),
    *,
    every: timedelta = timedelta(milliseconds=20),
) -> T:
    """Return the condition's value as soon as it is true, or fail with its last value.

    Args:
        condition: called again and again; may be a coroutine function.
        deadline: how long to wait at most.
        every: pause between two looks.
    """
    give_up = time.monotonic() + deadline.total_seconds()
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {deadline.total_seconds():g} s; last value: {value!r}")
        await asyncio.sleep(every.total_seconds())
