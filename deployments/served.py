"""Makes the entries of prefect.yaml deployments that a runner of this machine can serve.

They differ in one thing only from what `prefect deploy` makes of them: there is no work pool.
"""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment


def served(entry: dict[str, Any]) -> RunnerDeployment:
    """Return the deployment of one entry of prefect.yaml, for a runner of this machine."""
    deployment = RunnerDeployment.from_entrypoint(
        entrypoint=entry["entrypoint"],
        name=entry["name"],
        parameters=entry.get("parameters") or {},
        description=entry.get("description"),
        tags=entry.get("tags") or [],
        version=entry.get("version"),
        schedules=[_schedule(schedule) for schedule in entry.get("schedules") or []],
    )
    # Set afterwards, the fields count as given: a work pool of an earlier deployment is taken off.
    deployment.work_pool_name = None
    deployment.work_queue_name = None
    return deployment


def _schedule(entry: dict[str, Any]) -> DeploymentScheduleCreate:
    cron = CronSchedule(cron=entry["cron"], timezone=entry.get("timezone", "UTC"))
    return DeploymentScheduleCreate(
        schedule=cron,
        active=entry.get("active", True),
        parameters=entry.get("parameters") or {},
        slug=entry.get("slug"),
    )
