"""What a reconcile pass does in Prefect: dead flow runs, a missing shift, runs that do not stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import httpx
import structlog
from prefect.exceptions import ObjectNotFound

from durable_jobs.errors import DurableJobsError
from durable_jobs.executor.duty import BEATS
from durable_jobs.reconciling import Reconciler, ReconcileReport
from durable_jobs.stores.protocols import ExecutorView, NewEvent, StalledQueue
from durable_jobs.tasks.artifacts import leave_artifact
from durable_jobs.tasks.dispatching import dispatch_if_prefect_answers
from durable_jobs.tasks.lost_runs import clear_up_runs
from durable_jobs.tasks.runs import close_run, is_starting, kill_run, start_run
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tasks.texts import cell

logger = structlog.get_logger(__name__)

SHIFT = "execute-jobs/shift"
LATE_BEATS = 1.5
"""Heartbeats after which a shift that lives would have beaten again."""
STOP_WITHIN, REPAIR_WITHIN = timedelta(seconds=20), timedelta(minutes=2)
STALLED_AFTER = timedelta(minutes=10)
DEAD = "The process of this run died; its jobs were settled by jobs-reconcile."


class PassFailed(DurableJobsError):
    """A reconcile pass left something undone."""


class Repairs(NamedTuple):
    """What a pass did in Prefect."""

    closed: int = 0
    dispatched: int = 0
    started_shift: bool = False
    lost: int = 0
    missed: int = 0


async def stop_runs(runtime: OpenRuntime) -> int:
    """Have runs of isolated jobs killed that were asked to stop and do not; return how many."""
    overdue = await runtime.store.unstoppable_runs(margin=runtime.settings.heartbeat_interval)
    try:
        # Orphans wait for this: a Prefect that answers slowly must not keep them waiting for minutes.
        async with asyncio.timeout(STOP_WITHIN.total_seconds()):
            return sum([await kill_run(run) for run in overdue])
    except (httpx.HTTPError, TimeoutError) as error:
        logger.warning("runs that do not stop are left to the next pass", error=repr(error))
        return 0


async def settle_orphans(runtime: OpenRuntime) -> ReconcileReport:
    """Settle what dead executors hold, and end what is overdue."""
    return await Reconciler(runtime.store, runtime.registry, runtime.settings).run()


async def repair_runs(runtime: OpenRuntime, report: ReconcileReport) -> Repairs:
    """Bring Prefect's records and runs in line with the store; when Prefect is away the next pass does."""
    try:
        async with asyncio.timeout(REPAIR_WITHIN.total_seconds()):
            return await _repair(runtime, report)
    except (httpx.HTTPError, ObjectNotFound, TimeoutError) as error:
        logger.warning("flow runs not repaired", error=repr(error))
        return Repairs()


async def _repair(runtime: OpenRuntime, report: ReconcileReport) -> Repairs:
    closed = [await close_run(e.flow_run_id, DEAD) for e in report.removed if e.flow_run_id is not None]
    started = await _replace_shift(runtime)
    dispatched = await dispatch_if_prefect_answers(runtime)
    cleared = await clear_up_runs(runtime)
    return Repairs(sum(closed), dispatched, started, cleared.lost, cleared.missed)


async def _replace_shift(runtime: OpenRuntime) -> bool:
    """Start a shift when none of the crew has beaten for three heartbeats and none is on its way."""
    if await _is_manned(runtime) or await is_starting(SHIFT):
        return False
    await start_run(SHIFT, {}, idempotency_key=f"missing-{int(time.time() // 60)}")
    return True


async def _is_manned(runtime: OpenRuntime) -> bool:
    """Tell whether the crew is complete; one that has just missed a beat is waited for, a pass comes seldom."""
    beat = runtime.settings.heartbeat_interval
    if await _beating(runtime, LATE_BEATS * beat) >= runtime.settings.crew:
        return True
    if await _beating(runtime, BEATS * beat) < runtime.settings.crew:
        return False
    await asyncio.sleep(((BEATS - LATE_BEATS) * beat).total_seconds())
    return await _beating(runtime, BEATS * beat) >= runtime.settings.crew


async def _beating(runtime: OpenRuntime, silent_after: timedelta) -> int:
    """Count the shifts on duty that execute every type which this program declares for shared queues."""
    registry = runtime.registry
    wanted = [t.name for t in registry.job_types.values() if registry.queue(t.queue).isolation == "shared"]
    return sum(
        on_duty(view, silent_after) and all(view.executor.executes(name) for name in wanted)
        for view in await runtime.store.executors()
    )


def on_duty(view: ExecutorView, silent_after: timedelta) -> bool:
    """Tell whether an executor belongs to the crew that claims now."""
    return view.executor.in_crew and not view.draining and view.silence < silent_after


async def tell_of_pass(runtime: OpenRuntime, report: ReconcileReport, repairs: Repairs) -> None:
    """Record the event of a completed pass, and leave the artifact `on-duty`.

    Raises:
        PassFailed: something could not be settled; named by tenant.
    """
    counts = {
        "silentExecutors": len(report.silent),
        "orphans": sum(report.settled.values()),
        "overdue": report.overdue,
        "tenantsWithFaults": len(report.faults),
        **repairs._asdict(),
    }
    if report.faults:
        raise PassFailed(
            "orphans could not be settled, the next pass tries again: "
            + "; ".join(f"tenant {tenant!r}: {fault}" for tenant, fault in report.faults.items())
        )
    await runtime.store.record_events([NewEvent("jobs.reconcile.completed", "INFO", counts)])


async def tell_stalled_queues(runtime: OpenRuntime, after: timedelta) -> list[StalledQueue]:
    """Return the queues whose oldest due job waits for longer; the event tells of each when that begins."""
    stalled = await runtime.store.tell_stalled(after=after)
    for one in stalled:
        logger.warning("queue is slow", queue=one.queue, pending=one.pending, waited=str(one.waited))
    return stalled


async def leave_duty_artifact(
    runtime: OpenRuntime, report: ReconcileReport, stalled: Sequence[StalledQueue]
) -> None:
    """Leave the artifact `on-duty`: who is on duty, what each holds, what this pass settled, what is slow."""
    markdown = duty_markdown(await runtime.store.executors(), report, stalled)
    await leave_artifact("on-duty", markdown, "Executors, and what the last pass settled.")


def duty_markdown(
    views: list[ExecutorView], report: ReconcileReport, stalled: Sequence[StalledQueue] = ()
) -> str:
    """Return the artifact's text."""
    rows = [
        f"| `{v.executor.executor_id}` | {cell(v.executor.host)} / {v.executor.pid} | {_role(v)} | {_held(v)} |"
        f" {v.started_at:%Y-%m-%d %H:%M:%S %Z} | {v.silence.total_seconds():.0f} s |"
        for v in views
    ]
    parts = ["| executor | host / pid | role | holds | since | last beat |\n|---|---|---|---|---|---|"]
    parts[0] += "".join(f"\n{row}" for row in rows) if rows else ""
    if not rows:
        parts.append("**Nobody is on duty.** A shift was started, or waits for a worker.")
    if report.settled:
        parts.append("### Settled in this pass\n\n| tenant | now | jobs |\n|---|---|---:|")
        parts[-1] += "".join(f"\n| {cell(t)} | {s} | {n} |" for (t, s), n in sorted(report.settled.items()))
    if report.overdue:
        parts.append(f"{report.overdue} jobs were past their time and ended.")
    parts += [
        f"**Queue {cell(one.queue)} is slow**: {one.pending:,} jobs wait in it, the oldest for"
        f" {timedelta(seconds=int(one.waited.total_seconds()))}."
        for one in stalled
    ]
    parts += [f"**Tenant {cell(t)}**: {cell(f, 300)}" for t, f in report.faults.items()]
    return "\n\n".join(parts) + "\n"


def _role(view: ExecutorView) -> str:
    if view.draining:
        return "finishing"
    return "on duty" if view.executor.in_crew else "beside the crew"


def _held(view: ExecutorView) -> str:
    return ", ".join(f"{cell(q)}: {n}" for q, n in sorted(view.held.items())) or "nothing"
