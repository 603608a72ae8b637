"""Has Prefect recorded the task run of a job that ended a while ago?

Task runs reach Prefect as events, which its recorder writes later; a job's end is in job_history at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import httpx

from durable_jobs.cli.checks.findings import Finding, ok, warning
from durable_jobs.jobs import Job
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import JobFilter
from durable_jobs.tenants import job_tenant_scope

NAME = "task run lag"
TOLERATED = timedelta(seconds=15)
LATELY = timedelta(hours=1)
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
MOST_TENANTS = 5
TERMINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
ADVICE = (
    "it catches up when fewer jobs end; see task run recorder, and wait before you look for a job in the UI"
)


class Lag:
    """A job whose task run should be recorded by now, if there is one."""

    def __init__(self) -> None:
        """Nothing is looked for yet."""
        self._job: Job | None = None
        self._ended_ago = timedelta(0)

    async def look_at_database(self, store: PgJobsStore, now: datetime) -> None:
        """Find a job that ended lately, but not just now, and was shown as a task run.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        for tenant in (await store.tenants("any"))[:MOST_TENANTS]:
            with job_tenant_scope(tenant):
                page = await store.list_jobs(JobFilter(states=ENDED, since=now - LATELY), limit=200)
            for job in page.jobs:
                ended_ago = now - (job.completed_at or now)
                if job.task_run_id is not None and TOLERATED < ended_ago < LATELY:
                    self._job, self._ended_ago = job, ended_ago
                    return

    async def finding(self, client: httpx.AsyncClient) -> Finding:
        """Ask Prefect for its task run.

        Raises:
            httpx.HTTPError: it does not answer.
        """
        if self._job is None:
            return ok(NAME, "no job was shown as a task run in the last hour")
        answer = await client.get(f"task_runs/{self._job.task_run_id}")
        if answer.status_code != httpx.codes.NOT_FOUND:
            answer.raise_for_status()
            if answer.json().get("state_type") in TERMINAL:
                return ok(NAME, f"the end of job {self._job.job_id} is recorded")
        seconds = round(self._ended_ago.total_seconds())
        return warning(
            NAME, f"job {self._job.job_id} ended {seconds} s ago, and Prefect does not show it", ADVICE
        )
