"""Waits for the ends of many flow runs with one poll for all of them.

Whoever waits holds a future: no connection, no thread, no request. One task of the process asks Prefect which
of the runs have ended, in requests of 200 ids that return only those, and ends when nobody waits.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID
from weakref import WeakKeyDictionary

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun

from durable_jobs.tasks.asking import shared_client, until_answered
from durable_jobs.tasks.runs import PAGE

POLL = timedelta(seconds=2)
LOOK_FOR_DELETED_EVERY = 15
"""Polls after which all runs are looked for, ended or not: a deleted run never ends."""


class RunWatcher:
    """Tells those who wait when their flow runs end."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._waiting: defaultdict[UUID, list[asyncio.Future[FlowRun | None]]] = defaultdict(list)
        self._polling: asyncio.Task[None] | None = None

    async def end_of(self, flow_run_id: UUID) -> FlowRun | None:
        """Wait until a run has ended and return it; None when it was deleted."""
        future: asyncio.Future[FlowRun | None] = asyncio.get_running_loop().create_future()
        self._waiting[flow_run_id].append(future)
        if self._polling is None:
            self._begin()
        try:
            return await future
        finally:
            self._forget(flow_run_id, future)

    def _begin(self) -> None:
        self._polling = asyncio.create_task(self._poll(), name="flow-runs")
        self._polling.add_done_callback(self._ended)

    def _ended(self, polling: asyncio.Task[None]) -> None:
        """Tell a fault to all who wait, and begin again for those who came while the poll was ending."""
        self._polling = None
        fault = None if polling.cancelled() else polling.exception()
        waiting = [future for futures in self._waiting.values() for future in futures if not future.done()]
        for future in waiting:
            if polling.cancelled():
                future.cancel()
            elif fault is not None:
                future.set_exception(fault)
        if waiting and fault is None and not polling.cancelled():
            self._begin()

    def _forget(self, flow_run_id: UUID, future: asyncio.Future[FlowRun | None]) -> None:
        left = [one for one in self._waiting[flow_run_id] if one is not future]
        if left:
            self._waiting[flow_run_id] = left
        else:
            del self._waiting[flow_run_id]

    async def _poll(self) -> None:
        polls = 0
        async with shared_client():
            while self._waiting:
                polls += 1
                ids = list(self._waiting)
                for start in range(0, len(ids), PAGE):
                    everything = polls % LOOK_FOR_DELETED_EVERY == 0
                    await self._look(ids[start : start + PAGE], everything=everything)
                await asyncio.sleep(POLL.total_seconds())

    async def _look(self, ids: Sequence[UUID], *, everything: bool) -> None:
        found = {run.id: run for run in await until_answered(lambda c: _read(c, ids, everything=everything))}
        for flow_run_id in ids:
            run = found.get(flow_run_id)
            if (run is None and everything) or (run is not None and run.state_type in TERMINAL_STATES):
                self._tell(flow_run_id, run)

    def _tell(self, flow_run_id: UUID, run: FlowRun | None) -> None:
        for future in self._waiting.get(flow_run_id, ()):
            if not future.done():
                future.set_result(run)


_watchers: WeakKeyDictionary[asyncio.AbstractEventLoop, RunWatcher] = WeakKeyDictionary()


def watcher() -> RunWatcher:
    """Return the one watcher of this event loop."""
    return _watchers.setdefault(asyncio.get_running_loop(), RunWatcher())


async def _read(client: PrefectClient, ids: Sequence[UUID], *, everything: bool) -> list[FlowRun]:
    ended = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(TERMINAL_STATES)))
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(ids)), state=None if everything else ended)
    return await client.read_flow_runs(flow_run_filter=wanted, limit=PAGE)
