"""A person's retry of many jobs of one tenant: shown first, done when asked for."""

from __future__ import annotations

from typing import Any

from prefect.runtime import flow_run

from durable_jobs.dead_letters.retrying import Retrier, TenantRetries
from durable_jobs.dead_letters.store import LetterFilter
from durable_jobs.errors import BadInput
from durable_jobs.stores.protocols import NewEvent
from durable_jobs.tasks.dead_letters import SHOWN, require_no_fault
from durable_jobs.tasks.letters_shown import leave_retry_artifact
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import validated


def require_choice(wanted: LetterFilter) -> LetterFilter:
    """Refuse to mean every job by saying nothing.

    Raises:
        BadInput: no part of the filter is set, or one cannot be meant.
    """
    if wanted.is_empty:
        raise BadInput(
            "say which jobs: job_ids, job_type, since or reason_like; reason_like '%' means every dead letter"
        )
    if wanted.job_ids == ():
        raise BadInput("job_ids is an empty list: name at least one job, or leave it out")
    if wanted.since is not None and wanted.since.tzinfo is None:
        raise BadInput(f"since {wanted.since.isoformat()} has no time zone: add +01:00, or Z for UTC")
    return wanted


async def retry_chosen(
    runtime: OpenRuntime, tenant: str, wanted: LetterFilter, *, limit: int, dry_run: bool
) -> dict[str, Any]:
    """Retry the dead letters of a tenant that fit, and leave the artifact `retry-jobs`.

    Raises:
        BadInput: the tenant's name cannot be one.
        PassFailed: some could not be retried.
    """
    letters = await runtime.store.find_failed(validated(tenant), wanted, limit=SHOWN + 1)
    shown, more = letters[:SHOWN], len(letters) > SHOWN
    if dry_run:
        await leave_retry_artifact(shown, None, more)
        return {"dryRun": True, "fitting": f"more than {SHOWN}" if more else len(shown)}
    retrier = Retrier(runtime.store, runtime.registry, by=f"flow run {flow_run.id}")
    done: TenantRetries = await retrier.retry_tenant(tenant, limit=limit, wanted=wanted)
    await runtime.store.record_events([NewEvent("jobs.retry.completed", "INFO", done.counts(), tenant)])
    await leave_retry_artifact(shown, done, more)
    require_no_fault([done])
    return {"dryRun": False, **done.counts()}
