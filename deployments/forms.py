"""The forms of the Prefect UI: a job type is chosen from those that are declared."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentUpdate

PARAMETER = "job_type"


async def offer_job_types(client: PrefectClient, deployment_id: UUID, names: Iterable[str]) -> bool:
    """Make the parameter `job_type` of an applied deployment a drop-down; return whether it has that parameter."""
    deployment = await client.read_deployment(deployment_id)
    schema = deployment.parameter_openapi_schema or {}
    field = schema.get("properties", {}).get(PARAMETER)
    if field is None:
        return False
    field["enum"] = sorted(names)
    await client.update_deployment(deployment_id, DeploymentUpdate(parameter_openapi_schema=schema))
    return True
