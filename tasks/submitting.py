"""Registers one job from a form of the Prefect UI, Prefect's command line, or an automation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from durable_jobs.jobs import Job
from durable_jobs.registration import prepare, register_all
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import DEFAULT_TENANT, job_tenant_scope


async def submit(
    runtime: OpenRuntime,
    job_type: str,
    data: Mapping[str, Any],
    *,
    tenant: str | None,
    idempotency_key: str | None,
    priority: int,
    run_at: datetime | None,
    submitted_by: str | None,
) -> Job:
    """Validate and register the request; `data` comes from JSON, so it is read as JSON.

    Raises:
        DurableJobsError: the request is refused, with the reason.
    """
    job = prepare(
        runtime.registry,
        runtime.settings,
        job_type,
        json.dumps(dict(data)),
        idempotency_key=idempotency_key,
        priority=priority,
        run_at=run_at,
        submitted_by=submitted_by,
    )
    with job_tenant_scope(tenant or DEFAULT_TENANT):
        return (await register_all(runtime.store, [job]))[0].job
