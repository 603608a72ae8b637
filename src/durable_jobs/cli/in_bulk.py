"""`retry` and `resubmit` of many jobs at once: by type, time or reason, looked at first with `--dry-run`.

It is always some jobs of one tenant: without an id and without a filter nothing is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from durable_jobs.cli import arguments
from durable_jobs.cli.arguments import Since
from durable_jobs.cli.output import answer, answer_json, printable, say, table
from durable_jobs.cli.running import declared, user, with_store
from durable_jobs.cli.where import require_database
from durable_jobs.dead_letters.resubmitting import ENDED, resubmit_all
from durable_jobs.dead_letters.retrying import Retrier
from durable_jobs.dead_letters.store import LetterFilter
from durable_jobs.errors import BadInput, DurableJobsError
from durable_jobs.jobs import Job
from durable_jobs.runtime import Runtime
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import NewEvent

ALL = 1_000_000
REFUSED = 3
_HEADS = ("JOB ID", "TYPE", "STATE", "ATTEMPTS LEFT", "REASON")

SomeIds = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of the jobs, or a filter.")]
ByType = Annotated[str | None, typer.Option("--type", help="Only this job type.")]
BySince = Annotated[
    str | None, typer.Option(help="Failed since: a duration (2h, P1D) or a time (2030-01-31T08:00:00Z).")
]
ByReason = Annotated[
    str | None, typer.Option(help="Only with this in the reason, in any case; % stands for any text.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show which jobs fit.")]


class Some(NamedTuple):
    """Which jobs are meant, and what is to be done with them."""

    tenant: str
    wanted: LetterFilter
    lately: Since
    dry_run: bool
    as_json: bool

    async def filter(self, store: PgJobsStore) -> LetterFilter:
        """Return what is wanted, with the moment that `--since` means."""
        return self.wanted._replace(since=await self.lately.moment(store))


def chosen(
    job_ids: Sequence[str] | None,
    job_type: str | None,
    since: str | None,
    reason_like: str | None,
    *,
    dry_run: bool,
    tenant: str,
    as_json: bool,
) -> Some | None:
    """Read what was asked for; None when it is only ids, which are answered one by one.

    Raises:
        BadInput: neither an id nor a filter is given.
    """
    ids = None if not job_ids else tuple(arguments.job_id(text) for text in job_ids)
    lately = arguments.since("--since", since) if since else Since()
    wanted = LetterFilter(ids, job_type, None, reason_like)
    if wanted.is_empty and lately == Since():
        raise BadInput(
            "say which jobs: ids, --type, --since or --reason-like; --reason-like % means all of them"
        )
    if wanted == LetterFilter(ids) and lately == Since() and not dry_run:
        return None
    require_database("a filter, or --dry-run,")
    return Some(tenant, wanted, lately, dry_run, as_json)


def retry_some(some: Some) -> None:
    """Retry the dead letters that fit."""

    async def work(runtime: Runtime, store: PgJobsStore) -> int:
        wanted = await some.filter(store)
        if some.dry_run:
            _show(await store.find_failed(some.tenant, wanted, limit=ALL), some)
            return 0
        retrier = Retrier(store, declared(runtime), by=user())
        done = await retrier.retry_tenant(some.tenant, limit=ALL, wanted=wanted)
        await store.record_events([NewEvent("jobs.retry.completed", "INFO", done.counts(), some.tenant)])
        _answer([str(one.child_id) for one in done.retried], some)
        say(
            f"{len(done.retried)} retried, {done.abandoned.total()} abandoned at their limit,"
            f" {len(done.refused)} not retryable any more"
        )
        if done.fault is not None:
            raise DurableJobsError(f"some jobs could not be retried: {done.fault}")
        return _full(done.full)

    _end(with_store(some.tenant, work))


def resubmit_some(some: Some) -> None:
    """Resubmit what failed or was abandoned and fits."""

    async def work(runtime: Runtime, store: PgJobsStore) -> int:
        wanted = await some.filter(store)
        if some.dry_run:
            _show(await store.find_ended(some.tenant, ENDED, wanted, limit=ALL), some)
            return 0
        done = await resubmit_all(store, declared(runtime), some.tenant, wanted, by=user())
        _answer([str(job.job_id) for job in done.new], some)
        for job_id, why in list(done.refused.items())[:20]:
            say(f"error: {job_id}: {why}")
        say(f"{len(done.new)} resubmitted, {len(done.refused)} not")
        return _full(done.full) or (1 if done.refused else 0)

    _end(with_store(some.tenant, work))


def _show(jobs: Sequence[Job], some: Some) -> None:
    if some.as_json:
        for job in jobs:
            answer_json(job.as_json(brief=True), indent=None)
    else:
        answer(table(_HEADS, [_row(job) for job in jobs]))
    say(f"{len(jobs)} jobs fit; nothing was changed")


def _row(job: Job) -> tuple[object, ...]:
    left = max(0, job.max_retries - job.retry_count)
    return (job.job_id, job.job_type, job.state, left, printable(job.failed_reason)[:120])


def _answer(new_ids: Sequence[str], some: Some) -> None:
    for new_id in new_ids:
        if some.as_json:
            answer_json({"jobId": new_id}, indent=None)
        else:
            answer(new_id)


def _full(queues: set[str]) -> int:
    for queue in sorted(queues):
        say(f"error: queue {queue!r} is full: the same command goes on when jobs of it have been executed")
    return REFUSED if queues else 0


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)
