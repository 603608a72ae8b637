"""`cancel`, `retry`, `resubmit`: what a person does with jobs, for one id or many.

Every id is read before anything is done. A job that says no does not keep the others from their turn;
the exit code is that of the worst answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated
from uuid import UUID

import typer

from durable_jobs.cli import arguments
from durable_jobs.cli.arguments import TENANT, Json, Tenant
from durable_jobs.cli.in_bulk import (
    ByReason,
    BySince,
    ByType,
    DryRun,
    SomeIds,
    chosen,
    resubmit_some,
    retry_some,
)
from durable_jobs.cli.output import answer, answer_json, say
from durable_jobs.cli.where import Jobs, with_jobs
from durable_jobs.errors import DurableJobsError, StoreUnavailable
from durable_jobs.jobs import Job
from durable_jobs.states import JobState

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of the jobs.")]
Act = Callable[[Jobs, UUID], Awaitable[Job]]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("cancel")(cancel)
    app.command("retry")(retry)
    app.command("resubmit")(resubmit)


def cancel(job_ids: Ids, tenant: Tenant = TENANT, as_json: Json = False) -> None:
    """Cancel waiting and failed jobs, ask running ones to stop; prints each id and its state.

    A running job is asked and the command returns at once: `durable-jobs get ID` tells when it has stopped.

    Example: durable-jobs cancel 0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55
    """

    _each(
        job_ids,
        tenant,
        lambda jobs, job_id: jobs.cancel(job_id),
        lambda job: f"{job.job_id} {_cancelled(job)}",
        as_json=as_json,
    )


def retry(
    job_ids: SomeIds = None,
    job_type: ByType = None,
    since: BySince = None,
    reason_like: ByReason = None,
    dry_run: DryRun = False,
    tenant: Tenant = TENANT,
    as_json: Json = False,
) -> None:
    """Make the retry of failed jobs, named by their ids or by a filter; prints the id of each new job.

    A job that has had all its retries becomes ABANDONED instead, and can be resubmitted.

    Example: durable-jobs retry --type DOCUMENT_ARCHIVE --since 2h --reason-like timeout --dry-run
    """
    some = chosen(job_ids, job_type, since, reason_like, dry_run=dry_run, tenant=tenant, as_json=as_json)
    if some is None:
        _each(
            job_ids or [],
            tenant,
            lambda jobs, one: jobs.retry(one),
            lambda job: str(job.job_id),
            as_json=as_json,
        )
    else:
        retry_some(some)


def resubmit(
    job_ids: SomeIds = None,
    job_type: ByType = None,
    since: BySince = None,
    reason_like: ByReason = None,
    dry_run: DryRun = False,
    tenant: Tenant = TENANT,
    as_json: Json = False,
) -> None:
    """Submit failed and abandoned jobs anew, with all their retries; prints the id of each new job.

    With a filter, jobs that were resubmitted before are left out.

    Example: durable-jobs resubmit --type DOCUMENT_ARCHIVE --since 1d
    """
    some = chosen(job_ids, job_type, since, reason_like, dry_run=dry_run, tenant=tenant, as_json=as_json)
    if some is None:
        _each(
            job_ids or [],
            tenant,
            lambda jobs, one: jobs.resubmit(one),
            lambda job: str(job.job_id),
            as_json=as_json,
        )
    else:
        resubmit_some(some)


def _each(
    job_ids: Sequence[str], tenant: str, act: Act, shown: Callable[[Job], str], *, as_json: bool
) -> None:
    wanted = list(dict.fromkeys(arguments.job_id(text) for text in job_ids))

    async def work(jobs: Jobs) -> int:
        worst = 0
        for n, job_id in enumerate(wanted):
            try:
                job = await act(jobs, job_id)
            except StoreUnavailable as error:
                raise StoreUnavailable(f"{error}{_left(wanted[n:])}") from error
            except DurableJobsError as error:
                say(f"error: {error}")
                worst = max(worst, error.exit_code)
                continue
            if as_json:
                answer_json(job.as_json(), indent=None)
            else:
                answer(shown(job))
        return worst

    if worst := with_jobs(tenant, work):
        raise typer.Exit(worst)


def _left(job_ids: Sequence[UUID]) -> str:
    """Say what was not done; repeating what was done is harmless."""
    if len(job_ids) == 1:
        return ""
    return f"\nNot done, or not known to be done: {' '.join(str(job_id) for job_id in job_ids)}"


def _cancelled(job: Job) -> str:
    return "RUNNING (asked to stop)" if job.state is JobState.RUNNING else str(job.state)
