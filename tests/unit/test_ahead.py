"""One call runs while the next is prepared: nothing of it is lost, and nothing of it is left behind."""

from __future__ import annotations

import asyncio

import pytest

from durable_jobs.ahead import Ahead


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def fail() -> int:
    await asyncio.sleep(0)
    raise LookupError("the call")


async def test_a_result_is_given_once() -> None:
    async with Ahead[int]() as ahead:
        assert await ahead.result() is None
        ahead.start(answer(7))
        assert await ahead.result() == 7
        assert await ahead.result() is None


async def test_what_was_begun_ends_before_a_failed_preparation_is_told() -> None:
    ended = asyncio.Event()

    async def write() -> int:
        await asyncio.sleep(0)
        ended.set()
        return 1

    with pytest.raises(ValueError, match="the next one"):
        async with Ahead[int]() as ahead:
            ahead.start(write())
            raise ValueError("the next one")
    assert ended.is_set()


async def test_the_failure_of_what_was_begun_comes_first() -> None:
    with pytest.raises(LookupError, match="the call") as caught:
        async with Ahead[int]() as ahead:
            ahead.start(fail())
            raise ValueError("the next one")
    assert isinstance(caught.value.__context__, ValueError)


async def test_a_cancelled_caller_leaves_nothing_running() -> None:
    begun = asyncio.Event()

    async def write() -> int:
        begun.set()
        await asyncio.Event().wait()
        return 1

    async def caller() -> None:
        async with Ahead[int]() as ahead:
            ahead.start(write())
            await asyncio.Event().wait()

    task = asyncio.create_task(caller())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
