"""What runs beside a shift may die: that is told at once, and the shift goes on."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from durable_jobs.tasks.beside import beside
from tests.support.eventually import eventually


async def test_a_death_is_told_at_once_and_ends_nothing_else() -> None:
    async def dispatch() -> None:
        raise RuntimeError("a fault of ours")

    with capture_logs() as logs:
        async with beside(dispatch(), "dispatching"):
            await eventually(lambda: logs)
            told = list(logs)
    assert [(entry["log_level"], entry["work"]) for entry in told] == [("error", "dispatching")]
    assert "a fault of ours" in told[0]["error"]
    assert logs == told


async def test_it_ends_with_the_block_whatever_happens_there() -> None:
    ended = asyncio.Event()

    async def dispatch() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with capture_logs() as logs, pytest.raises(ValueError, match="the shift's own"):
        async with beside(dispatch(), "dispatching"):
            await asyncio.sleep(0)
            raise ValueError("the shift's own")
    assert ended.is_set()
    assert logs == []
