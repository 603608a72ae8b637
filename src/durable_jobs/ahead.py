"""One call that runs while the next one is prepared; its result is awaited before another is started.

Invariant: behind the block nothing of it runs any more, and no failure of it is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """At most one call in flight."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._task: asyncio.Task[T] | None = None

    def start(self, call: Coroutine[Any, Any, T]) -> None:
        """Begin a call; the result of the one before has been awaited."""
        self._task = asyncio.create_task(call)

    async def result(self) -> T | None:
        """Return what the call in flight returns, or raise what it raises; None when there is none."""
        task, self._task = self._task, None
        return None if task is None else await task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and self._task is not None:
            self._task.cancel()
        # When the preparation of the next call fails, what was begun before it counts, as its failure does.
        await self.result()
