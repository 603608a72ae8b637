"""The forms of the Prefect UI: a job type is chosen from those that are declared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentUpdate

PARAMETER = "job_type"


async def offer_job_types(client: PrefectClient, deployment_id: UUID, names: Iterable[str]) -> bool:
    """Make the parameter `job_type` of an applied deployment a drop-down; return whether it has that parameter."""
    deployment = await client.read_deployment(deployment_id)
    schema = deployment.parameter_openapi_schema or {}
    if not with_job_types(schema, names):
        return False
    await client.update_deployment(deployment_id, DeploymentUpdate(parameter_openapi_schema=schema))
    return True


def with_job_types(schema: dict[str, Any], names: Iterable[str]) -> bool:
    """Put the names into a schema of parameters; False when it has no parameter `job_type`."""
    field = schema.get("properties", {}).get(PARAMETER)
    if field is None:
        return False
    field["enum"] = sorted(names)
    return True
