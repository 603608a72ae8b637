"""Which deployments are watched, and the policy of each: by a tag, or by their names.

Invariant: none of our own is among them, so that no failure of ours keeps itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterTags,
    FlowFilter,
    FlowFilterId,
)
from prefect.client.schemas.objects import DeploymentStatus
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound

from durable_jobs.flow_runs.policy import TAG, VARIABLE, RunPolicy, read_policy
from durable_jobs.tasks.lost_runs import TAG as OUR_TAG
from durable_jobs.tasks.runs import PAGE


class Watched(NamedTuple):
    """A deployment whose failed runs are kept."""

    deployment_id: UUID
    name: str
    policy: RunPolicy
    polled: bool
    """Whether a worker or a runner asks for its runs, as far as Prefect knows."""
    faults: tuple[str, ...] = ()
    """What its tags or the variable say that cannot be read."""


async def read_watched(
    client: PrefectClient, names: Sequence[str] = (), tag: str | None = None
) -> list[Watched]:
    """Return the deployments with these names and those with the tag, without ours.

    A name that does not exist (any more) is left out.
    """
    found = {one.id: one for one in await _tagged(client, tag)} if tag else {}
    for name in names:
        try:
            one = await client.read_deployment_by_name(name)
        except ObjectNotFound:
            continue
        found[one.id] = one
    theirs = [one for one in found.values() if OUR_TAG not in one.tags]
    if not theirs:
        return []
    flows = await _flow_names(client, {one.flow_id for one in theirs})
    variable = await client.read_variable_by_name(VARIABLE)
    policies = variable.value if variable is not None else None
    return [_watched(one, flows.get(one.flow_id, "?"), policies, tag or TAG) for one in theirs]


def _watched(one: DeploymentResponse, flow: str, policies: object, tag: str) -> Watched:
    name = f"{flow}/{one.name}"
    read = read_policy(name, one.tags, policies, tag=tag)
    return Watched(one.id, name, read.policy, one.status is DeploymentStatus.READY, read.faults)


async def _tagged(client: PrefectClient, tag: str) -> list[DeploymentResponse]:
    wanted = DeploymentFilter(tags=DeploymentFilterTags(all_=[tag]))
    found: list[DeploymentResponse] = []
    while page := await client.read_deployments(deployment_filter=wanted, limit=PAGE, offset=len(found)):
        found += page
    return found


async def _flow_names(client: PrefectClient, ids: set[UUID]) -> dict[UUID, str]:
    names: dict[UUID, str] = {}
    for start in range(0, len(ids), PAGE):
        part = sorted(ids)[start : start + PAGE]
        flows = await client.read_flows(flow_filter=FlowFilter(id=FlowFilterId(any_=part)), limit=PAGE)
        names |= {flow.id: flow.name for flow in flows}
    return names
