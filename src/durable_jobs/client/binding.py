"""Turns one description of an operation into a method of the blocking client and of the asyncio client.

A description is a generator function; what it returns is the method's result, what it emits a stream's items.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import httpx

from durable_jobs.client.asking import Emit, Flow, Options, Pause, Send, Step

if TYPE_CHECKING:
    from durable_jobs.client.clients import AsyncJobsClient, JobsClient

P = ParamSpec("P")
T = TypeVar("T")


class Operation(Generic[P, T]):
    """A method with one result."""

    def __init__(self, describe: Callable[Concatenate[Options, P], Flow[T]]) -> None:
        """Take the description."""
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: JobsClient, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncJobsClient, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> Operation[P, T]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        """Return the method of a client."""
        return self if client is None else _bound(self._describe, client, client.run)


class Stream(Generic[P, T]):
    """A method that gives items one after another: an iterator, or an asynchronous one."""

    def __init__(self, describe: Callable[Concatenate[Options, P], Flow[None]], of: type[T]) -> None:  # noqa: ARG002 -- names the items' type
        """Take the description and the type of its items."""
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: JobsClient, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncJobsClient, owner: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> Stream[P, T]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        """Return the method of a client."""
        return self if client is None else _bound(self._describe, client, client.stream)


def _bound(describe: Callable[..., Flow[Any]], client: Any, drive: Callable[[Flow[Any]], Any]) -> Any:
    @functools.wraps(describe)
    def method(*args: Any, **kwargs: Any) -> Any:
        return drive(describe(client.options, *args, **kwargs))

    return method


class Next:
    """Goes through a flow step by step; a failed step is raised inside of it."""

    def __init__(self, flow: Flow[Any]) -> None:
        """Nothing is begun."""
        self._flow, self._answer, self._error = flow, None, None
        self.result: Any = None

    def step(self) -> Step | None:
        """Return what to do next, or None when the flow has returned its result."""
        answer, error = self._answer, self._error
        self._answer = self._error = None
        try:
            return self._flow.send(answer) if error is None else self._flow.throw(error)
        except StopIteration as end:
            self.result = end.value
            return None

    def answer(self, answer: Any) -> None:
        """Say what came of the step."""
        self._answer = answer

    def fail(self, error: Any) -> None:
        """Say that the step failed."""
        self._error = error


def drive(at: Next, send: Callable[[Send], httpx.Response]) -> Iterator[Any]:
    """Do the steps of a flow and yield what it emits; the result is left in `at`."""
    while (step := at.step()) is not None:
        match step:
            case Send():
                try:
                    at.answer(send(step))
                except httpx.TransportError as error:
                    at.fail(error)
            case Pause():
                time.sleep(step.seconds)
            case Emit():
                yield step.item


async def adrive(at: Next, send: Callable[[Send], Coroutine[Any, Any, httpx.Response]]) -> AsyncIterator[Any]:
    """Do the steps of a flow and yield what it emits, with asyncio; the result is left in `at`."""
    while (step := at.step()) is not None:
        match step:
            case Send():
                try:
                    at.answer(await send(step))
                except httpx.TransportError as error:
                    at.fail(error)
            case Pause():
                await asyncio.sleep(step.seconds)
            case Emit():
                yield step.item
