"""The figures of a purge for events and programs: counts, never anything of a job."""

from __future__ import annotations

from typing import Any

from durable_jobs.retention.bullmq import RedisPurged
from durable_jobs.retention.looking import Look
from durable_jobs.stores.retention import PurgeTotals


def purge_figures(before: Look, totals: PurgeTotals, redis: RedisPurged) -> dict[str, Any]:
    """Return what a purge has done."""
    return {
        "jobsEndedBefore": before.limits.jobs_before.isoformat(),
        "effectsMadeBefore": before.limits.effects_before.isoformat(),
        "tenants": sum(1 for tenant in before.tenants.values() if tenant.has_due),
        **totals._asdict(),
        "redis": redis.gone,
    }


def look_figures(look: Look) -> dict[str, Any]:
    """Return what a purge would take now, in camelCase, as the command line and the API show it."""
    return {
        "jobsEndedBefore": look.limits.jobs_before.isoformat(),
        "effectsMadeBefore": look.limits.effects_before.isoformat(),
        "jobs": look.total("due"),
        "bytes": look.total("bytes"),
        "effects": look.total("effects_due"),
        "events": look.total("events_due"),
        "keptWithChain": look.total("kept_with_chain"),
        "groups": [
            {
                "tenantId": tenant,
                "jobType": group.job_type,
                "state": str(group.state),
                "jobs": group.jobs,
                "bytes": group.bytes,
                "oldest": group.oldest.isoformat(),
                "youngest": group.youngest.isoformat(),
            }
            for tenant, found in look.tenants.items()
            for group in found.groups.values()
        ],
    }
