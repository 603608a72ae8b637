"""Settles what dead executors left: every orphan ends exactly once as its type says.

A silent executor is looked at twice, two heartbeats apart: after an outage of the database all are
silent for a moment and none is dead. One tenant's fault stops nobody else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import structlog

from durable_jobs import payloads
from durable_jobs.errors import DurableJobsError
from durable_jobs.jobs import Job
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Decision, ReconcilerStore, RemovedExecutor
from durable_jobs.texts import clean, reason_of
from durable_jobs.urls import first_line

logger = structlog.get_logger(__name__)

BATCH = 10
OVERDUE_MARGIN_BEATS = 3
LEFT_TO_OTHERS = 10
"""Times `running_stale_after` for which an orphan of an undeclared type is left to a pass that knows the type."""


class ReconcileFailed(DurableJobsError):
    """A pass could not settle everything; the next one tries again."""


@dataclass
class ReconcileReport:
    """What a pass did."""

    silent: list[UUID] = field(default_factory=list)
    settled: Counter[tuple[str, JobState]] = field(default_factory=Counter)
    """By tenant and new state."""
    overdue: int = 0
    removed: list[RemovedExecutor] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    """What went wrong, by tenant."""

    @property
    def did_something(self) -> bool:
        """Whether people may want to look."""
        return bool(self.silent or self.overdue or self.faults)


class Reconciler:
    """One pass over what dead executors hold."""

    def __init__(
        self, store: ReconcilerStore, registry: Registry, settings: Settings, *, dead: Sequence[UUID] = ()
    ) -> None:
        """Use an open store.

        Args:
            store: where the jobs are.
            registry: says what becomes of an orphan.
            settings: how long silence must last.
            dead: executors whose processes are known to have ended; then only these are looked at, at once.
        """
        self._store, self._registry, self._settings = store, registry, settings
        self._dead = list(dead)
        self._lately_silent: set[UUID] = set()

    async def run(self) -> ReconcileReport:
        """Settle orphans and overdue jobs; faults of tenants are in the report.

        Raises:
            ReconcileFailed: no tenant was seen although there are jobs.
            StoreUnavailable: the database does not answer.
        """
        await self._require_sight()
        report = ReconcileReport(silent=self._dead or await self._surely_silent())
        if report.silent:
            patience = LEFT_TO_OTHERS * self._settings.running_stale_after
            views = await self._store.executors()
            self._lately_silent = {v.executor.executor_id for v in views if v.silence < patience}
        for tenant in await self._store.tenants("running"):
            await self._settle_tenant(tenant, report)
            await self._end_overdue(tenant, report)
        report.removed = await self._store.remove_executors(
            report.silent, stale_after=timedelta(0) if self._dead else self._settings.running_stale_after
        )
        return report

    async def _require_sight(self) -> None:
        if await self._sees_nothing():
            # The statistics may lag behind a table that was just emptied.
            await asyncio.sleep(2 * self._settings.heartbeat_interval.total_seconds())
        if await self._sees_nothing():
            raise ReconcileFailed(
                "no tenant is seen although job_history has rows: the role that enumerates tenants has lost its"
                " policy or its rights; run the migrations again (durable-jobs deploy)"
            )

    async def _sees_nothing(self) -> bool:
        return await self._store.has_rows() and not await self._store.tenants("any")

    async def _surely_silent(self) -> list[UUID]:
        stale_after = self._settings.running_stale_after
        first = await self._store.silent_executors(stale_after=stale_after)
        if not first:
            return []
        await asyncio.sleep(2 * self._settings.heartbeat_interval.total_seconds())
        again = set(await self._store.silent_executors(stale_after=stale_after))
        return [executor for executor in first if executor in again]

    async def _settle_tenant(self, tenant: str, report: ReconcileReport) -> None:
        left: set[UUID] = set()
        one_by_one = False
        while True:
            seen: list[UUID] = []

            def decide(job: Job, seen: list[UUID] = seen) -> Decision | None:
                seen.append(job.job_id)
                decision = self.decide(job)
                if decision is None:
                    left.add(job.job_id)
                return decision

            try:
                states = await self._store.settle_orphans(
                    tenant,
                    report.silent,
                    decide,
                    max_crashes=self._settings.max_crashes,
                    skip=left,
                    limit=1 if one_by_one else BATCH,
                )
            except DurableJobsError:
                raise
            except Exception as error:  # noqa: BLE001 -- a row that cannot be written must not hold up the others
                _note_fault(report, tenant, "orphans not settled", error)
                if not seen:
                    return
                if len(seen) == 1:
                    left.update(seen)
                one_by_one = True
                continue
            report.settled.update((tenant, state) for state in states.values())
            if not seen:
                return

    async def _end_overdue(self, tenant: str, report: ReconcileReport) -> None:
        margin = OVERDUE_MARGIN_BEATS * self._settings.heartbeat_interval
        try:
            report.overdue += len(await self._store.fail_overdue(margin=margin, tenant=tenant))
        except DurableJobsError:
            raise
        except Exception as error:  # noqa: BLE001 -- as above
            _note_fault(report, tenant, "overdue jobs not ended", error)

    def decide(self, job: Job) -> Decision | None:
        """Say what becomes of one orphan: again, if its type may and its payload still validates.

        A type that is not declared here may be declared where the next pass runs: for a while it is left to that.
        """
        declared = self._registry.job_types.get(job.job_type)
        if declared is None and job.executor_id in self._lately_silent:
            return None
        if declared is None or declared.on_orphan != "replay":
            return Decision(replay=False)
        try:
            payloads.load_stored(declared, job.payload, job.payload_version)
        except DurableJobsError as error:
            logger.warning("an orphan's payload does not validate", job_id=str(job.job_id), error=str(error))
            return Decision(
                replay=False, reason=f"stalled, and not replayed: {reason_of(error)}", retryable=False
            )
        return Decision(replay=True, charged=not declared.follows)


def _note_fault(report: ReconcileReport, tenant: str, what: str, error: Exception) -> None:
    fault = f"{what}: {clean(first_line(error), 500)}"
    if report.faults.get(tenant) != fault:
        logger.error(what, tenant=tenant, error=fault)
    report.faults[tenant] = fault
