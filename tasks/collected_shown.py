"""The artifact of a pass that kept failures: which, why, and how each deployment is treated.

No value of a parameter is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from prefect.utilities.urls import url_for

from durable_jobs.flow_runs.endings import reason_for
from durable_jobs.tasks.artifacts import leave_artifact
from durable_jobs.tasks.collecting import Collected
from durable_jobs.tasks.texts import cell
from durable_jobs.tasks.watched_deployments import Watched

SHOWN = 100


async def leave_collected_artifact(done: Collected) -> None:
    """Leave the artifact `collected-flow-runs` when there is something to tell."""
    if done.kept or any(one.faults for one in done.watched):
        await leave_artifact(
            "collected-flow-runs", collected_markdown(done), "Failed flow runs that were kept."
        )


def collected_markdown(done: Collected) -> str:
    """Return the text: a sentence, the new dead letters, the policies, what cannot be read."""
    parts = [
        f"**{len(done.kept)}** failed runs of {len(done.watched)} watched deployments kept as dead letters"
        f" ({done.hung} hung, {done.never_started} never started)."
    ]
    if not done.complete:
        parts.append("There are more; the next pass goes on.")
    if done.kept:
        rows = [
            f"| {cell(one.deployment)} | {_link(one.run.flow_run_id)} | `{job_id}` |"
            f" {cell(reason_for(one.run), 200)} |"
            for job_id, one in done.kept[:SHOWN]
        ]
        parts.append("\n".join(["| deployment | run | job | why |", "|---|---|---|---|", *rows]))
    parts.append(policies_markdown(done.watched))
    parts.append(
        "One job's whole story: `durable-jobs get JOB --chain`. To run it again at once:"
        " `durable-jobs retry JOB`."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def policies_markdown(watched: Sequence[Watched]) -> str:
    """Return the policies of watched deployments as a table, and what of them cannot be read."""
    if not watched:
        return ""
    rows = []
    for one in sorted(watched, key=lambda w: w.name):
        said = one.policy.as_json()
        retries = said["maxRetries"] if said["retryable"] else "never"
        rows.append(
            f"| {cell(one.name)} | {retries} | {said['retryBackoff'] or ''} | {said['timeout'] or ''} |"
        )
    parts = ["\n".join(["| watched deployment | retries | backoff | timeout |", "|---|---|---|---|", *rows])]
    faults = [f"- {cell(one.name)}: {cell(fault, 300)}" for one in watched for fault in one.faults]
    if faults:
        parts.append("**Not understood, and so without effect:**\n\n" + "\n".join(faults))
    return "\n\n".join(parts)


def _link(flow_run_id: UUID) -> str:
    url = url_for("flow-run", obj_id=flow_run_id)
    return f"[flow run]({url})" if url else f"`{flow_run_id}`"
