"""Reads prefect.yaml into deployments that a runner can serve.

prefect.yaml is the only place where a deployment and its cron are written; what is served from it differs in
one thing only from what `prefect deploy` makes of it: there is no work pool.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment


def read_manifest() -> list[dict[str, Any]]:
    """Return the entries under `deployments` of the prefect.yaml that ships with this package."""
    text = (resources.files("durable_jobs") / "prefect.yaml").read_text("utf-8")
    return list(yaml.safe_load(text).get("deployments") or [])


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


def is_scheduled(entry: dict[str, Any]) -> bool:
    """Tell whether the deployment runs by itself; the others run when somebody asks."""
    return bool(entry.get("schedules"))


def _schedule(entry: dict[str, Any]) -> DeploymentScheduleCreate:
    cron = CronSchedule(cron=entry["cron"], timezone=entry.get("timezone", "UTC"))
    return DeploymentScheduleCreate(
        schedule=cron,
        active=entry.get("active", True),
        parameters=entry.get("parameters") or {},
        slug=entry.get("slug"),
    )
