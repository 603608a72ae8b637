"""The figures of a purge for events and programs: counts, never anything of a job."""

from __future__ import annotations

from typing import Any

from durable_jobs.retention.bullmq import RedisPurged
from durable_jobs.retention.looking import Look


def purge_figures(before: Look, redis: RedisPurged) -> dict[str, Any]:
    """Return what an event tells of a purge, beside what its run has counted."""
    return {
        "jobsEndedBefore": before.limits.jobs_before.isoformat(),
        "effectsMadeBefore": before.limits.effects_before.isoformat(),
        "tenants": sum(found.has_due for name, found in before.tenants.items() if name is not None),
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
