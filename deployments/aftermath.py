"""What an outage leaves in Prefect: flow runs of dead processes.

Prefect itself never ends a Running flow run whose process died. Called before a runner starts, when no process of
the served deployments lives: then every unfinished run is dead.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.states import Crashed

from durable_jobs.tasks.lost_runs import UNFINISHED
from durable_jobs.tasks.runs import find_runs

INTERRUPTED = "The machine or `durable-jobs up` was stopped while this run was going on."


async def close_dead_runs(client: PrefectClient, deployment_ids: Collection[UUID]) -> int:
    """Set the flow runs that a killed process left unfinished to Crashed; return how many."""
    dead = await find_runs(client, deployment_ids, UNFINISHED)
    for run in dead:
        await client.set_flow_run_state(run.id, Crashed(message=INTERRUPTED), force=True)
    return len(dead)
