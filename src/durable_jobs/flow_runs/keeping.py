"""Turns a failed flow run into the job that keeps it.

A failure is named by its run and the run's attempt, so that whoever finds it, and however often, names the
same job. What cannot be stored is kept without its parameters, and then is not retryable.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from durable_jobs.errors import InvalidPayload, PayloadTooLarge
from durable_jobs.flow_runs.endings import EndedRun, reason_for
from durable_jobs.flow_runs.job_type import NAME
from durable_jobs.flow_runs.payload import RunDeployment
from durable_jobs.flow_runs.policy import RunPolicy
from durable_jobs.flow_runs.store import NewFailure
from durable_jobs.jobs import NewJob
from durable_jobs.registration import prepare
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings

BY = "collect-flow-runs"
RUN_TAG = "durable-job:"
"""How the tag of a run begins that names its job; also the idempotency key of a run that a job started."""

SCHEDULED = "auto-scheduled"
"""Tag of a run that Prefect's scheduler made; a retry is none."""


class FailedRun(NamedTuple):
    """A failed run of a deployment that is watched."""

    run: EndedRun
    run_count: int
    deployment: str
    policy: RunPolicy
    failed_at: datetime
    tags: Sequence[str] = ()
    job_variables: dict[str, Any] | None = None


def run_key(job_id: UUID) -> str:
    """Return the idempotency key, and the tag, of the one run that a job starts."""
    return f"{RUN_TAG}{job_id}"


def is_a_jobs_run(idempotency_key: str | None) -> bool:
    """Tell whether a job started a run: then the run belongs to the job's chain."""
    return (idempotency_key or "").startswith(RUN_TAG)


def keep(registry: Registry, settings: Settings, failed: FailedRun) -> NewFailure:
    """Return the job that keeps a failure; nothing is stored yet."""
    reason = f"FlowRunFailed: {failed.deployment}: {reason_for(failed.run)}"
    try:
        job = _prepared(registry, settings, failed, with_values=True)
    except (InvalidPayload, PayloadTooLarge) as error:
        job = _prepared(registry, settings, failed, with_values=False)._replace(retryable=False)
        # What the error says of a value is not for people to read.
        reason += f" (not retryable: {type(error).__name__}, its parameters cannot be stored)"
    policy = failed.policy
    return NewFailure(
        job._replace(max_retries=policy.max_retries, retryable=job.retryable and policy.retryable),
        failed.run.flow_run_id,
        reason,
        failed.failed_at,
    )


def _prepared(registry: Registry, settings: Settings, failed: FailedRun, *, with_values: bool) -> NewJob:
    request = RunDeployment(
        deployment=failed.deployment,
        parameters=failed.run.parameters if with_values else {},
        tags=tuple(sorted(tag for tag in failed.tags if tag != SCHEDULED and not tag.startswith(RUN_TAG))),
        job_variables=(failed.job_variables or None) if with_values else None,
        retry_backoff=failed.policy.retry_backoff,
        flow_run_id=failed.run.flow_run_id,
    )
    return prepare(
        registry,
        settings,
        NAME,
        request,
        idempotency_key=f"flow-run:{failed.run.flow_run_id}:{failed.run_count}",
        submitted_by=BY,
    )
