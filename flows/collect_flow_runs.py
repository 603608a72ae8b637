"""Keeps failed flow runs of any deployment as dead letters, without a change to its code."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from durable_jobs.flow_runs.payload import DeploymentName
from durable_jobs.flow_runs.policy import TAG
from durable_jobs.tasks.collected_shown import leave_collected_artifact
from durable_jobs.tasks.collecting import Collected, end_hopeless_runs, find_watched, keep_failed_runs
from durable_jobs.tasks.run_agreement import agree_with_prefect
from durable_jobs.tasks.runtimes import open_runtime
from durable_jobs.tenants import DEFAULT_TENANT


@flow(name="collect-flow-runs", persist_result=False)
async def collect_flow_runs(
    tag: Annotated[str, Field(min_length=1)] = TAG,
    deployments: list[DeploymentName] | None = None,
    tenant: str = DEFAULT_TENANT,
    window: Annotated[timedelta, Field(gt=timedelta(0))] = timedelta(days=1),
    overlap: Annotated[timedelta, Field(ge=timedelta(0))] = timedelta(minutes=15),
    never_started_after: Annotated[timedelta, Field(gt=timedelta(0))] = timedelta(hours=1),
    limit: Annotated[int, Field(ge=1, strict=True)] = 1_000,
) -> dict[str, Any] | None:
    """Keep failed flow runs as dead letters.

    Failed, crashed, hung and never started runs of the watched deployments become FAILED jobs of the type
    PREFECT_FLOW_RUN, each once; from there they are retried as their policy says.

    Args:
        tag: Deployments with this tag are watched.
        deployments: Deployments that are watched too, as FLOW/DEPLOYMENT.
        tenant: In whose name their failures are kept.
        window: How far back to look at a deployment seen first.
        overlap: How far before its position a pass begins.
        never_started_after: A run so long overdue, for which nobody polls, has failed.
        limit: About how many failures a pass keeps.
    """
    async with open_runtime() as runtime, runtime.store.only_one("collect-flow-runs") as alone:
        if not alone:
            get_run_logger().info("Another pass is under way")
            return None
        done = Collected(await find_watched(tag, deployments or []))
        await end_hopeless_runs(runtime, done, tenant, never_started_after)
        await keep_failed_runs(runtime, done, tenant, window=window, overlap=overlap, limit=limit)
        agreed = await agree_with_prefect(runtime)
        await leave_collected_artifact(done)
    counts = done.counts() | agreed.counts()
    get_run_logger().info("%s", counts)
    return counts
