"""Writes outcomes in batches, under their fences, and retries while the store is away.

An outcome is handed over once and written until the store has answered; only then its place in the
queue's bound is free. Repeating a write is harmless: the store knows its own outcome again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from durable_jobs.errors import DurableJobsError, StoreUnavailable
from durable_jobs.jobs import Outcome
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import JobsOperator, Unwritten
from durable_jobs.texts import clean

logger = structlog.get_logger(__name__)

Written = Callable[[Sequence[Outcome], Sequence[Unwritten]], None]

BATCH = 250
LINGER = timedelta(milliseconds=5)
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
REFUSED_PAUSE_S = 5.0


class OutcomeWriter:
    """Collects outcomes for at most `LINGER` or `BATCH`, whichever comes first."""

    def __init__(self, store: JobsOperator, written: Written) -> None:
        """`written` is called for each batch that the store has answered."""
        self._store = store
        self._written = written
        self._waiting: list[Outcome] = []
        self._some = asyncio.Event()
        self._enough = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()
        self._hurrying = asyncio.Event()

    def put(self, outcome: Outcome) -> None:
        """Hand an outcome over."""
        self._waiting.append(outcome)
        self._nothing.clear()
        self._some.set()
        if self._hurrying.is_set() or len(self._waiting) >= BATCH:
            self._enough.set()

    def flush(self) -> None:
        """Write what is waiting now without lingering: nothing more is coming soon."""
        self._enough.set()

    async def drain(self, within: float) -> bool:
        """Write everything that waits, without lingering any more; False when it takes longer (s)."""
        self._hurrying.set()
        self._enough.set()
        try:
            async with asyncio.timeout(within):
                await self._nothing.wait()
        except TimeoutError:
            return False
        return True

    @property
    def waiting(self) -> int:
        """How many outcomes are not yet handed to the store."""
        return len(self._waiting)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._some.wait()
            if len(self._waiting) < BATCH and not self._hurrying.is_set():
                await self._linger()
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            if not self._waiting:
                self._some.clear()
                if not self._hurrying.is_set():
                    self._enough.clear()
            if batch:
                await self._write(batch)
            if not self._waiting:
                self._nothing.set()

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER.total_seconds()):
                await self._enough.wait()
        except TimeoutError:
            return

    async def _write(self, batch: list[Outcome]) -> None:
        try:
            await self._write_when_back(batch)
        except DurableJobsError:
            raise
        except Exception as error:  # noqa: BLE001 -- the store refused the content of an outcome
            if len(batch) == 1:
                await self._write_without_content(batch[0], error)
            else:
                for outcome in batch:
                    await self._write([outcome])

    async def _write_without_content(self, outcome: Outcome, refusal: Exception) -> None:
        try:
            await self._write_when_back([_without_content(outcome, refusal)])
        except DurableJobsError:
            raise
        except Exception as error:  # noqa: BLE001 -- the store refuses the row itself; others must not wait for it
            logger.error("an outcome is refused, tried again later", job_id=str(outcome.job.job_id),
                         error=clean(str(error), 200))  # fmt: skip
            asyncio.get_running_loop().call_later(REFUSED_PAUSE_S, self.put, outcome)

    async def _write_when_back(self, batch: list[Outcome]) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                self._written(batch, await self._store.finish(batch))
                return
            except StoreUnavailable as error:
                logger.warning("outcomes wait for the store", outcomes=len(batch), error=str(error))
                await self._pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        if self._hurrying.is_set():
            await asyncio.sleep(FIRST_PAUSE_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurrying.wait()


def _without_content(outcome: Outcome, error: Exception) -> Outcome:
    """Keep what happened; only its description cannot be stored."""
    logger.warning("a description of an outcome could not be stored", job_id=str(outcome.job.job_id),
                   error=clean(str(error), 200))  # fmt: skip
    succeeded = outcome.state is JobState.SUCCEEDED
    return outcome._replace(
        result='{"status":"OK","truncated":true}' if succeeded else None,
        failed_reason="its reason could not be stored" if outcome.state is JobState.FAILED else None,
    )
