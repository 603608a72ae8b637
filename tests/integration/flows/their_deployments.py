"""Deployments of somebody else that nobody serves: the test is their worker, and says how runs go."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling, Completed, Failed, Pending, Running

from durable_jobs.flow_runs.keeping import run_key

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "title": "n"}, "word": {"type": "string", "title": "word"}},
}


class Theirs:
    """One Prefect server, as its worker and its people see it."""

    def __init__(self, client: PrefectClient) -> None:
        self.client = client
        self.made: list[UUID] = []

    async def deploy(self, *tags: str, schema: Any = None, **options: Any) -> str:
        """Make a deployment and return its name."""
        name = f"a-{uuid4().hex[:8]}"
        flow_id = await self.client.create_flow_from_name("theirs")
        deployment_id = await self.client.create_deployment(
            flow_id=flow_id,
            name=name,
            tags=list(tags),
            parameter_openapi_schema=schema or SCHEMA,
            enforce_parameter_schema=True,
            **options,
        )
        self.made.append(deployment_id)
        return f"theirs/{name}"

    async def start(self, deployment: str, **options: Any) -> FlowRun:
        """Start a run, as a person does."""
        found = await self.client.read_deployment_by_name(deployment)
        return await self.client.create_flow_run_from_deployment(found.id, **options)

    async def set(self, run: UUID, *states: State[Any]) -> None:
        """Bring a run into states, one after the other."""
        for state in states:
            await self.client.set_flow_run_state(run, state, force=True)

    async def run(self, run: UUID) -> None:
        """Let a run begin."""
        await self.set(run, Pending(), Running())

    async def fail(
        self, run: UUID, message: str = "Flow run encountered an exception: ValueError: no"
    ) -> None:
        """Let a run fail."""
        await self.set(run, Pending(), Running(), Failed(message=message))

    async def complete(self, run: UUID, message: str = "All states completed.") -> None:
        """Let a run succeed."""
        await self.set(run, Pending(), Running(), Completed(message=message))

    async def cancel(self, run: UUID) -> None:
        """Let a person cancel a run and its runner obey."""
        await self.set(run, Cancelling(), Cancelled(message="Flow run was cancelled successfully."))

    async def runs_of(self, job_id: UUID) -> list[FlowRun]:
        """Return the runs that a job started."""
        key = FlowRunFilterIdempotencyKey(any_=[run_key(job_id)])
        return await self.client.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key=key))

    async def state(self, run: UUID) -> str:
        """Return the name of a run's state."""
        return str((await self.client.read_flow_run(run)).state_name)

    async def remove(self) -> None:
        """Delete what was made."""
        for deployment_id in self.made:
            with suppress(ObjectNotFound):
                await self.client.delete_deployment(deployment_id)
