"""`submit`: registers a job, or many from JSON Lines, and may wait for the end of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from durable_jobs.cli import arguments
from durable_jobs.cli.arguments import TENANT, Json, Tenant
from durable_jobs.cli.bulk import submit_lines
from durable_jobs.cli.options import SubmitOptions, WaitOptions
from durable_jobs.cli.output import answer, answer_json
from durable_jobs.cli.reading import Requests, open_requests
from durable_jobs.cli.waiting import wait_for
from durable_jobs.cli.where import Jobs, SubmitRequest, check_type, with_jobs
from durable_jobs.errors import BadInput


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("submit")(submit)


def submit(
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="Name of a job type.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="JSON", help="The request; `-` reads stdin. [default: {}]", show_default=False
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Read the request, or JSON Lines, from this file.")
    ] = None,
    from_line: Annotated[
        int | None, typer.Option(min=1, help="JSON Lines: go on at this line, after an interruption.")
    ] = None,
    tenant: Tenant = TENANT,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Makes a repeated submission return the same job.")
    ] = None,
    correlation_id: Annotated[str | None, typer.Option(help="Any text, to find related work.")] = None,
    priority: Annotated[int, typer.Option(help="-100 to 100; higher runs first.")] = 0,
    run_at: Annotated[
        str | None, typer.Option(help="Not before this time, such as 2030-01-31T08:00:00+01:00.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job has ended; exit 1 if it failed.")
    ] = False,
    chain: Annotated[bool, typer.Option("--chain", help="With --wait: wait for its retries too.")] = False,
    wait_timeout: Annotated[
        str | None, typer.Option(help="With --wait: give up waiting after this long, such as 90s or PT15M.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Submit a job; its id is printed. Many at once: JSON Lines, one request a line.

    Example: durable-jobs submit DOCUMENT_ARCHIVE '{"source": "/data/letter.pdf", "store": "/archive"}' --wait
    """
    options = SubmitOptions(
        job_type,
        tenant,
        idempotency_key,
        correlation_id,
        priority,
        arguments.aware_time("--run-at", run_at) if run_at else None,
        as_json,
    )
    waiting = WaitOptions.of(wait, chain, wait_timeout)
    with open_requests(data, file, from_line) as requests:
        # A type that does not exist is told before a long file is read.
        check_type(job_type)
        if requests.document is None:
            _submit_many(requests, options, waiting)
        else:
            _submit_one(requests.document, options, waiting)


def _submit_many(requests: Requests, options: SubmitOptions, waiting: WaitOptions | None) -> None:
    for option, given in (("--idempotency-key", options.idempotency_key), ("--wait", waiting)):
        if given:
            raise BadInput(f"{option} is for one request, and this is JSON Lines; submit them one by one")
    submit_lines(requests, options)


def _submit_one(document: str, options: SubmitOptions, waiting: WaitOptions | None) -> None:
    request = SubmitRequest(
        options.job_type,
        document,
        options.idempotency_key,
        options.correlation_id,
        options.priority,
        options.run_at,
    )

    async def work(jobs: Jobs) -> None:
        job_id = await jobs.submit(request)
        if not options.as_json:
            answer(str(job_id))
        elif waiting is None:
            answer_json((await jobs.get(job_id)).as_json(), indent=None)
        if waiting is not None:
            await wait_for(jobs, job_id, waiting, as_json=options.as_json)

    with_jobs(options.tenant, work)
