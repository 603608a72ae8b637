"""What a Prefect server has recorded, as people see it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterId,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, Log, TaskRun


class Records:
    """Reads the server."""

    def __init__(self, client: PrefectClient) -> None:
        self.client = client

    async def task_runs(self, flow_run_id: UUID) -> list[TaskRun]:
        one = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
        return await self.client.read_task_runs(flow_run_filter=one, limit=200)

    async def logs(self, flow_run_id: UUID) -> list[Log]:
        one = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run_id]))
        return await self.client.read_logs(log_filter=one, limit=200)

    async def artifacts(self, flow_run_id: UUID) -> dict[str, Any]:
        one = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
        found = await self.client.read_artifacts(artifact_filter=one)
        return {str(artifact.key): artifact.data for artifact in found}

    async def runs_of(self, deployment_id: UUID) -> list[FlowRun]:
        one = DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id]))
        return await self.client.read_flow_runs(deployment_filter=one, limit=200)

    async def everything_about(self, flow_run_id: UUID) -> str:
        """Return all that Prefect has of a flow run, as text."""
        run = await self.client.read_flow_run(flow_run_id)
        parts: list[Any] = [run.model_dump_json()]
        parts += [task.model_dump_json() for task in await self.task_runs(flow_run_id)]
        parts += [log.model_dump_json() for log in await self.logs(flow_run_id)]
        parts.append(await self.artifacts(flow_run_id))
        return "\n".join(map(str, parts))
