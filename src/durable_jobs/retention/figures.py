"""The figures of a purge for events and programs: counts, never anything of a job."""

from __future__ import annotations

from typing import Any

from durable_jobs.moments import for_programs
from durable_jobs.retention.bullmq import RedisPurged
from durable_jobs.retention.looking import Look


def purge_figures(before: Look, redis: RedisPurged) -> dict[str, Any]:
    """Return what an event tells of a purge, beside what its run has counted."""
    return {
        "jobsEndedBefore": for_programs(before.limits.jobs_before),
        "effectsMadeBefore": for_programs(before.limits.effects_before),
        "tenants": sum(found.has_due for name, found in before.tenants.items() if name is not None),
        "redis": redis.gone,
    }


def look_figures(look: Look) -> dict[str, Any]:
    """Return what a purge would take now, in camelCase, as the command line and the API show it."""
    return {
        "jobsEndedBefore": for_programs(look.limits.jobs_before),
        "effectsMadeBefore": for_programs(look.limits.effects_before),
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
                "oldest": for_programs(group.oldest),
                "youngest": for_programs(group.youngest),
            }
            for tenant, found in look.tenants.items()
            for group in found.groups.values()
        ],
    }
