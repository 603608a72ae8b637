"""How failures of watched deployments are treated, as Prefect knows it; asked over HTTP, without loading Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from durable_jobs.cli.checks.prefect_api import open_client
from durable_jobs.cli.output import say
from durable_jobs.flow_runs.policy import TAG, VARIABLE, read_policy

PAGE = 200


async def deployment_policies() -> list[dict[str, Any]] | None:
    """Return the policies of deployments with the tag; None when no Prefect is named or it does not answer."""
    client = open_client()
    if client is None:
        return None
    async with client:
        try:
            return await _read(client)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            say(
                f"Prefect does not answer, so the policies of deployments are not shown: {type(error).__name__}"
            )
            return None


async def _read(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    wanted = {"deployments": {"tags": {"all_": [TAG]}}}
    deployments = await _all(client, "deployments/filter", wanted)
    if not deployments:
        return []
    ids = sorted({one["flow_id"] for one in deployments})
    flows = {flow["id"]: flow["name"] for flow in await _flows(client, ids)}
    variable = await client.get(f"variables/name/{VARIABLE}")
    value = variable.json()["value"] if variable.is_success else None
    return sorted(
        (
            _policy(f"{flows.get(one['flow_id'], '?')}/{one['name']}", one["tags"], value)
            for one in deployments
        ),
        key=lambda one: str(one["deployment"]),
    )


def _policy(name: str, tags: Sequence[str], variable: Any) -> dict[str, Any]:
    read = read_policy(name, tags, variable)
    return {"deployment": name, **read.policy.as_json(), "faults": list(read.faults)}


async def _flows(client: httpx.AsyncClient, ids: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for start in range(0, len(ids), PAGE):
        found += await _all(client, "flows/filter", {"flows": {"id": {"any_": ids[start : start + PAGE]}}})
    return found


async def _all(client: httpx.AsyncClient, path: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        answer = await client.post(path, json={**wanted, "limit": PAGE, "offset": len(found)})
        page: list[dict[str, Any]] = answer.raise_for_status().json()
        found += page
        if len(page) < PAGE:
            return found
