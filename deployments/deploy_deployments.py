"""The deployments of prefect.yaml on a server with work pools, compared field by field before they are changed.

What operators set in Prefect stays: a paused schedule stays paused, a parameter keeps its value, and job
variables beside ours (an image, memory for isolated jobs) are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import (
    DeploymentScheduleCreate,
    DeploymentScheduleUpdate,
    DeploymentUpdate,
)
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

from durable_jobs.deployments.deploy_plan import Action, Step
from durable_jobs.deployments.forms import with_job_types

TAG = "durable-jobs"
OURS = "DURABLE_JOBS_"
_COMPARED = (
    "entrypoint", "description", "tags", "parameters", "enforce_parameter_schema", "parameter_openapi_schema",
    "work_pool_name", "work_queue_name", "pull_steps", "path",
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """One deployment as it should be."""

    flow_name: str
    name: str
    fields: dict[str, Any]
    schedules: list[dict[str, Any]]
    variables: dict[str, str]
    """The environment of its flow runs."""

    @property
    def full_name(self) -> str:
        """Return the name as Prefect writes it."""
        return f"{self.flow_name}/{self.name}"


def wanted_deployment(
    entry: Mapping[str, Any], job_types: Iterable[str], variables: Mapping[str, str], pool: str | None = None
) -> Wanted:
    """Return the deployment of one entry of prefect.yaml.

    Args:
        entry: from the manifest.
        job_types: what its form offers.
        variables: the environment of its flow runs.
        pool: another work pool than the manifest's.
    """
    flow: Flow[..., Any] = load_flow_from_entrypoint(entry["entrypoint"])
    schema = parameter_schema(flow).model_dump(exclude_unset=True)
    with_job_types(schema, job_types)
    fields = {
        "entrypoint": entry["entrypoint"],
        "description": entry.get("description"),
        "tags": entry.get("tags") or [],
        "parameters": entry.get("parameters") or {},
        "enforce_parameter_schema": True,
        "parameter_openapi_schema": schema,
        "work_pool_name": pool or entry["work_pool"]["name"],
        "work_queue_name": entry["work_pool"].get("work_queue_name", "default"),
        # Everything that a run needs is installed where the worker is.
        "pull_steps": [],
        "path": None,
    }
    schedules = [
        {
            "slug": schedule["slug"],
            "cron": schedule["cron"],
            "timezone": schedule.get("timezone", "UTC"),
            "active": schedule.get("active", True),
            "parameters": schedule.get("parameters") or {},
        }
        for schedule in entry.get("schedules") or []
    ]
    return Wanted(flow.name, entry["name"], fields, schedules, dict(variables))


async def plan_deployments(client: PrefectClient, wanted: Iterable[Wanted]) -> list[Step]:
    """Compare each deployment with what the server has, and name those that this version does not have."""
    wanted = list(wanted)
    steps = [await _plan(client, one) for one in wanted]
    return steps + await _left_over(client, {one.full_name for one in wanted})


async def _plan(client: PrefectClient, wanted: Wanted) -> Step:
    try:
        found = await client.read_deployment_by_name(wanted.full_name)
    except ObjectNotFound:
        return _creation(client, wanted)
    return _change(client, wanted, found)


def _creation(client: PrefectClient, wanted: Wanted) -> Step:
    async def create() -> None:
        await client.create_deployment(
            flow_id=await client.create_flow_from_name(wanted.flow_name),
            name=wanted.name,
            schedules=[DeploymentScheduleCreate(**_schedule(schedule)) for schedule in wanted.schedules],
            job_variables={"env": wanted.variables},
            **wanted.fields,
        )

    crons = ", ".join(schedule["cron"] for schedule in wanted.schedules)
    return Step("deployment", wanted.full_name, Action.CREATE, crons or "runs when asked for", create)


def _change(client: PrefectClient, wanted: Wanted, found: DeploymentResponse) -> Step:
    fields = wanted.fields | {"parameters": _keeping_parameters(wanted.fields, found)}
    variables = _merged(found.job_variables or {}, wanted.variables)
    schedules = _keeping_pauses(wanted.schedules, found)
    changed = [name for name in _COMPARED if _normal(getattr(found, name)) != _normal(fields[name])]
    changed += ["job variables"] if variables != (found.job_variables or {}) else []
    new_schedules = schedules != _schedules(found)
    changed += ["schedules"] if new_schedules else []

    async def change() -> None:
        update = DeploymentUpdate(job_variables=variables, **fields)
        if new_schedules:
            update.schedules = [DeploymentScheduleUpdate(**_schedule(schedule)) for schedule in schedules]
        await client.update_deployment(found.id, update)

    if changed:
        return Step("deployment", wanted.full_name, Action.CHANGE, ", ".join(changed), change)
    paused = found.paused or any(not schedule["active"] for schedule in schedules)
    return Step(
        "deployment", wanted.full_name, Action.UNCHANGED, "paused in Prefect, left so" if paused else ""
    )


def _merged(found: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the job variables with ours replaced, and everything else as operators set it."""
    theirs = {name: value for name, value in (found.get("env") or {}).items() if not name.startswith(OURS)}
    return found | {"env": theirs | dict(variables)}


def _keeping_parameters(fields: Mapping[str, Any], found: DeploymentResponse) -> dict[str, Any]:
    known = fields["parameter_openapi_schema"].get("properties", {})
    kept = {name: value for name, value in (found.parameters or {}).items() if name in known}
    return {**fields["parameters"], **kept}


def _schedules(found: DeploymentResponse) -> list[dict[str, Any]]:
    return sorted(
        (
            {
                "slug": schedule.slug,
                "cron": getattr(schedule.schedule, "cron", str(schedule.schedule)),
                "timezone": getattr(schedule.schedule, "timezone", None),
                "active": schedule.active,
                "parameters": schedule.parameters,
            }
            for schedule in found.schedules
        ),
        key=lambda schedule: str(schedule["slug"]),
    )


def _keeping_pauses(wanted: list[dict[str, Any]], found: DeploymentResponse) -> list[dict[str, Any]]:
    paused = {schedule.slug for schedule in found.schedules if not schedule.active}
    kept = [
        schedule | {"active": schedule["active"] and schedule["slug"] not in paused} for schedule in wanted
    ]
    return sorted(kept, key=lambda schedule: str(schedule["slug"]))


def _schedule(wanted: dict[str, Any]) -> dict[str, Any]:
    cron = CronSchedule(cron=wanted["cron"], timezone=wanted["timezone"])
    return {"schedule": cron} | {name: wanted[name] for name in ("slug", "active", "parameters")}


def _normal(value: Any) -> Any:
    return (
        sorted(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else value or None
    )


async def _left_over(client: PrefectClient, names: set[str]) -> list[Step]:
    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    steps = []
    for found in await client.read_deployments(deployment_filter=ours, limit=200):
        full_name = f"{(await client.read_flow(found.flow_id)).name}/{found.name}"
        if full_name not in names:
            detail = f"not of this version; remove it: prefect deployment delete {full_name}"
            steps.append(Step("deployment", full_name, Action.NOTE, detail))
    return steps
