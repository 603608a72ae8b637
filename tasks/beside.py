"""Runs something beside a flow's own work; its fault is told at once and ends nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

logger = structlog.get_logger(__name__)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run `work` until the block ends. The reconciler does the same work as a backstop."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        logger.error(
            "stopped by a fault; jobs-reconcile goes on with it", work=task.get_name(), error=repr(fault)
        )
