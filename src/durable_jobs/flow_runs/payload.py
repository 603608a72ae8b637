"""What a PREFECT_FLOW_RUN job is asked, and what it answers.

Parameters are kept as Prefect stores them: references to blocks stay references.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _deployment_name(name: str) -> str:
    flow, _, deployment = name.partition("/")
    if not flow or not deployment or "/" in deployment:
        raise ValueError(
            f"{name!r} is no deployment's name; write it as FLOW/DEPLOYMENT, such as etl/nightly"
        )
    return name


DeploymentName = Annotated[str, AfterValidator(_deployment_name)]


class RunDeployment(BaseModel):
    """Run a Prefect deployment, and follow the run to its end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    deployment: DeploymentName = Field(description="Name of the deployment, such as etl/nightly.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of the run; the deployment's own fill what is missing."
    )
    tags: tuple[str, ...] = Field((), description="Tags of the run, beside those of the deployment.")
    job_variables: dict[str, Any] | None = Field(
        None, description="Job variables of the run, for the work pool's infrastructure."
    )
    retry_backoff: timedelta | None = Field(
        None, description="How long the first retry waits; twice as long each further one."
    )
    flow_run_id: UUID | None = Field(
        None, description="The run whose failure this job keeps; set by collect-flow-runs."
    )


class FollowedRun(BaseModel):
    """How a followed run ended well."""

    flow_run_id: UUID
    state: str
    message: str | None = None
    result: Any = None
