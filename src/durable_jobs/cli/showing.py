"""`get` and `list`: jobs as their rows tell them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from durable_jobs.cli import arguments
from durable_jobs.cli.arguments import TENANT, Json, Tenant
from durable_jobs.cli.chains import show_chain
from durable_jobs.cli.output import answer, answer_json, printable, say, table
from durable_jobs.cli.where import Jobs, with_jobs
from durable_jobs.jobs import Job
from durable_jobs.moments import for_people
from durable_jobs.stores.protocols import JobFilter

MAX_PAGE = 1_000
_HEADS = ("JOB ID", "TYPE", "QUEUE", "STATE", "CREATED", "RETRY", "REASON")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("get")(get)
    app.command("list")(list_jobs)


def get(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the job.")],
    chain: Annotated[
        bool, typer.Option("--chain", help="All attempts: reasons, who retried, what remains.")
    ] = False,
    tenant: Tenant = TENANT,
    as_json: Json = False,
) -> None:
    """Show one job: state, reason, payload, result, lineage; or its whole chain.

    Example: durable-jobs get 0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55 --json
    """
    wanted = arguments.job_id(job_id)
    if chain:
        show_chain(wanted, tenant, as_json=as_json)
        return

    async def read(jobs: Jobs) -> Job:
        return await jobs.get(wanted)

    document = with_jobs(tenant, read).as_json()
    if as_json:
        answer_json(document)
    else:
        answer(_card(document))


def list_jobs(
    state: Annotated[
        list[str] | None, typer.Option(help="Only this state; repeat it for several.", show_default=False)
    ] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only this job type.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Created since: a duration (2h, P1D) or a time (2030-01-31T08:00:00Z).")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE, help="Jobs on a page.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="The nextCursor of the page before.")] = None,
    tenant: Tenant = TENANT,
    as_json: Json = False,
) -> None:
    """List jobs, newest first, without payloads and results.

    Example: durable-jobs list --state FAILED --state ABANDONED --since 2h
    """
    wanted = JobFilter(states=arguments.states(state or []), job_type=job_type, queue=queue)
    lately = arguments.since("--since", since) if since else arguments.Since()

    async def read(jobs: Jobs) -> tuple[Sequence[Job], str | None]:
        return await jobs.page(wanted, lately, cursor, limit)

    found, following = with_jobs(tenant, read)
    if as_json:
        answer_json({"jobs": [job.as_json(brief=True) for job in found], "nextCursor": following})
        return
    answer(table(_HEADS, [_row(job) for job in found]))
    if following:
        say(f"There are more: --cursor {following}")


def _row(job: Job) -> tuple[Any, ...]:
    retry = f"{job.retry_count}/{job.max_retries}"
    reason = printable(job.failed_reason)
    shown = reason if len(reason) <= 80 else f"{reason[:79]}\N{HORIZONTAL ELLIPSIS}"
    return (job.job_id, job.job_type, job.queue, job.state, for_people(job.created_at), retry, shown)


def _card(document: dict[str, Any]) -> str:
    shown = {name: value for name, value in document.items() if value is not None}
    width = max(len(name) for name in shown)
    return "\n".join(f"{name.ljust(width)}  {_text(value)}" for name, value in shown.items())


def _text(value: Any) -> str:
    return printable(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
