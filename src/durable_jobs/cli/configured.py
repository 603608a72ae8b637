"""`config`: what this program is configured with; it needs no database, and asks Prefect only if one is named."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import typer
from pydantic.alias_generators import to_snake

from durable_jobs.cli.arguments import TENANT, Json
from durable_jobs.cli.output import answer, answer_json, table
from durable_jobs.cli.where import Jobs, remote_url, with_jobs

_QUEUE_HEADS = ("QUEUE", "CONCURRENCY", "MAX PENDING", "ISOLATION")
_TYPE_HEADS = ("JOB TYPE", "QUEUE", "RETRIES", "TIMEOUT", "ON ORPHAN", "VISIBILITY", "FIELDS")

_POLICY_HEADS = ("POLICY OF A TYPE THAT DOES NOT SAY", "RETRIES")
_DEPLOYMENT_HEADS = (
    "DEPLOYMENT WHOSE FAILED RUNS ARE KEPT",
    "RETRIES",
    "BACKOFF",
    "TIMEOUT",
    "NOT UNDERSTOOD",
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("config")(config)


def config(as_json: Json = False) -> None:
    """Show the settings (secrets hidden), the queues, and the job types with their policies.

    With PREFECT_API_URL also the policies of deployments whose failed flow runs are kept.

    With --json each job type comes with the JSON schema of its payload.

    Example: durable-jobs config --json
    """
    document = _configuration()
    if as_json:
        answer_json(document)
    else:
        # An API tells its settings only to people on duty.
        if "settings" in document:
            settings = [(_variable(name), _text(value)) for name, value in document["settings"].items()]
            answer(table(("SETTING", "VALUE"), settings) + "\n")
        answer(table(_QUEUE_HEADS, map(_queue_row, document["queues"])) + "\n")
        answer(table(_TYPE_HEADS, map(_type_row, document["jobTypes"])) + "\n")
        answer(table(_POLICY_HEADS, map(_policy_row, document["policies"].items())))
        if document.get("deploymentPolicies"):
            answer("\n" + table(_DEPLOYMENT_HEADS, map(_deployment_row, document["deploymentPolicies"])))


def _configuration() -> dict[str, Any]:
    if remote_url() is None:
        # Only this command needs them: httpx and the store load slowly.
        from durable_jobs.cli.deployment_policies import deployment_policies
        from durable_jobs.cli.jobs_in_database import configuration_here

        # Not the database's: what is configured can be seen without any.
        return configuration_here() | {"deploymentPolicies": asyncio.run(deployment_policies())}

    async def read(jobs: Jobs) -> dict[str, Any]:
        return await jobs.config()

    return with_jobs(TENANT, read)


def _variable(name: str) -> str:
    return f"DURABLE_JOBS_{to_snake(name).upper()}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _queue_row(queue: dict[str, Any]) -> tuple[Any, ...]:
    bound = "no bound" if queue["maxPending"] is None else queue["maxPending"]
    return (queue["name"], queue["concurrency"], bound, queue["isolation"])


def _policy_row(policy: tuple[str, dict[str, Any]]) -> tuple[Any, ...]:
    name, says = policy
    return (name, says["maxRetries"] if says["retryable"] else "never")


def _deployment_row(policy: dict[str, Any]) -> tuple[Any, ...]:
    retries = policy["maxRetries"] if policy["retryable"] else "never"
    faults = "; ".join(policy["faults"])
    return (policy["deployment"], retries, policy["retryBackoff"] or "", policy["timeout"] or "", faults)


def _type_row(declared: dict[str, Any]) -> tuple[Any, ...]:
    required = declared["payload"].get("required", [])
    fields = (name if name in required else f"[{name}]" for name in declared["payload"].get("properties", {}))
    retries = declared["maxRetries"] if declared["retryable"] else "never"
    return (
        declared["name"],
        declared["queue"],
        retries,
        declared["timeout"],
        declared["onOrphan"],
        declared["visibility"],
        " ".join(fields),
    )
