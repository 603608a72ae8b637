"""Do the modules that declare job types load, and do their declarations fit together?"""

from __future__ import annotations

from durable_jobs.cli.checks.findings import Finding, failed, ok
from durable_jobs.cli.running import declared
from durable_jobs.errors import DurableJobsError
from durable_jobs.runtime import Runtime
from durable_jobs.settings import Settings


def check_modules(settings: Settings) -> Finding:
    """Load what a worker would load."""
    try:
        registry = declared(Runtime(settings))
    except DurableJobsError as error:
        return failed("job modules", str(error), "correct the module, or take it out of DURABLE_JOBS_MODULES")
    named = ", ".join(settings.modules) or "none named"
    return ok(
        "job modules",
        f"{len(registry.job_types)} job types in {len(registry.queues)} queues (DURABLE_JOBS_MODULES: {named})",
    )
