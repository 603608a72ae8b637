"""Records a purge from its first moment to its last: one at a time, and none ends unsaid.

A run that was killed leaves a record without an end, which the next run takes for a failure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from durable_jobs.errors import DurableJobsError, PurgeRefused, PurgeUnderWay, RetentionViolated
from durable_jobs.stores.retention import Limits, RetentionStore

LOCK = "purge"
BROKEN_OFF = "the run ended before it was verified"


class Finish(Protocol):
    """Records the end; `RetentionStore.finish_purge`, or a task around it."""

    def __call__(
        self, run_id: UUID, *, fault: str | None, early: bool, payload: Mapping[str, Any]
    ) -> Awaitable[str | None]:
        """Record how a purge ended, and its event."""
        ...


@dataclass
class PurgeRecord:
    """A purge that is under way, and what its event is to tell."""

    run_id: UUID
    payload: dict[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def recorded(
    store: RetentionStore, limits: Limits, finish: Finish | None = None
) -> AsyncIterator[PurgeRecord]:
    """Record the purge that happens inside the block; whatever ends the block is its outcome.

    Raises:
        PurgeUnderWay: another purge is at work.
        StoreUnavailable: the store does not answer.
    """
    async with store.only_one(LOCK) as alone:
        if not alone:
            raise PurgeUnderWay("another purge is at work: wait until it has ended, then start again")
        record = PurgeRecord(await store.begin_purge(limits))
        fault: str | None = BROKEN_OFF
        early = False
        try:
            yield record
            fault = None
        except DurableJobsError as error:
            fault = str(error)
            early = isinstance(error, PurgeRefused) or (isinstance(error, RetentionViolated) and error.early)
            raise
        finally:
            await (finish or store.finish_purge)(
                record.run_id, fault=fault, early=early, payload=record.payload
            )
