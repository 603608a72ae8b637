"""Settles what dead executors left, and sees to it that somebody is on duty."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from durable_jobs.tasks.publishing import publish_events
from durable_jobs.tasks.reconciling import (
    STALLED_AFTER,
    leave_duty_artifact,
    repair_runs,
    settle_orphans,
    stop_runs,
    tell_of_pass,
    tell_stalled_queues,
)
from durable_jobs.tasks.runtimes import open_runtime


@flow(name="jobs-reconcile", persist_result=False)
async def jobs_reconcile(
    stalled_after: Annotated[timedelta, Field(gt=timedelta(0))] = STALLED_AFTER,
) -> None:
    """Settle orphans and keep a shift on duty.

    Jobs of executors that died are executed again or fail, as their type says; a missing shift is started;
    jobs that run alone get their flow run; flow runs of dead processes are closed. Slow queues are told of.

    Args:
        stalled_after: A queue whose oldest due job waits longer than this is told of, once.
    """
    async with open_runtime() as runtime, runtime.store.only_one("reconcile") as alone:
        if not alone:
            get_run_logger().info("Another pass is under way")
            return
        await stop_runs(runtime)
        report = await settle_orphans(runtime)
        repairs = await repair_runs(runtime, report)
        stalled = await tell_stalled_queues(runtime, stalled_after)
        await publish_events(runtime.store)
        await leave_duty_artifact(runtime, report, stalled)
        await tell_of_pass(runtime, report, repairs)
