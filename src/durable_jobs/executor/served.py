"""What a shift executes: the types that it declares, less those that its successors execute.

Workers may load different modules. A successor relieves a shift of what it executes itself; a shift that alone
knows some types stays on duty for those. A job of a type that is not declared here is given back for others, not
charged, and its type is left out of further claims.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import structlog

from durable_jobs.executor.bounds import QueueBounds
from durable_jobs.jobs import ClaimedJob
from durable_jobs.stores.protocols import Executor, ExecutorStore

logger = structlog.get_logger(__name__)

KEPT_FOR = timedelta(hours=1)
"""How long a shift stays for types that no successor executes while no job of them comes."""
UNDECLARED = "its type is not declared in the program that claimed it"


class Served:
    """The types and queues of one executor, as the store is told."""

    def __init__(
        self, store: ExecutorStore, executor: Executor, bounds: QueueBounds, queues: Mapping[str, str]
    ) -> None:
        """`queues` names the queue of each type."""
        self._store = store
        self._executor_id = executor.executor_id
        self._bounds = bounds
        self._queues = {name: queues[name] for name in executor.job_types or ()}
        self._served = executor.queues
        self._left_out: frozenset[str] = frozenset()
        self._is_kept = False
        self._ended = 0
        self._busy_at = time.monotonic()

    async def give_back(self, jobs: Sequence[ClaimedJob]) -> None:
        """Give claimed jobs of undeclared types back, and claim no more of them.

        Raises:
            StoreUnavailable: they are still held here; the audit gives them back.
        """
        types = {job.job_type for job in jobs}
        logger.warning(
            "jobs given back: their types are not declared in this program, see DURABLE_JOBS_MODULES",
            jobs=len(jobs),
            job_types=sorted(types),
        )
        await self._tell(self._queues, self._left_out | types)
        await self._store.release([(job, True) for job in jobs], UNDECLARED)

    async def hand_over(self, newer: Collection[Executor], crew: int) -> bool:
        """Let go of what at least `crew` newer shifts execute; True when nothing is left to do.

        Raises:
            StoreUnavailable: nothing was handed over.
        """
        if len(newer) < crew:
            return False
        kept = {
            name: queue
            for name, queue in self._queues.items()
            if sum(shift.executes(name) for shift in newer) < crew
        }
        if not kept:
            return True
        if len(kept) < len(self._queues):
            await self._tell(kept, self._left_out | (self._queues.keys() - kept.keys()))
            self._is_kept = True
        return self._is_kept and self._in_vain()

    async def _tell(self, types: dict[str, str], left_out: Collection[str]) -> None:
        queues = [queue for queue in self._served if queue in types.values() or types == self._queues]
        await self._store.serve_less(
            self._executor_id, queues=queues, job_types=sorted(types), left_out=sorted(left_out)
        )
        self._bounds.let_go(set(self._served) - set(queues))
        self._queues, self._left_out, self._served = dict(types), frozenset(left_out), tuple(queues)

    def _in_vain(self) -> bool:
        now = time.monotonic()
        if any(self._bounds.in_flight.values()) or self._bounds.ended != self._ended:
            self._ended, self._busy_at = self._bounds.ended, now
        return now - self._busy_at > KEPT_FOR.total_seconds()
