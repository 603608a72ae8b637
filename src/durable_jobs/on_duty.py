"""An executor as people and programs see it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durable_jobs.moments import for_programs
from durable_jobs.stores.protocols import ExecutorView


def duty_of(view: ExecutorView, stale_after: timedelta) -> str:
    """Tell what an executor does, in a word."""
    if view.silence >= stale_after:
        return "silent"
    if view.draining:
        return "draining"
    return "idle" if view.idle else "working"


def as_document(view: ExecutorView, stale_after: timedelta) -> dict[str, Any]:
    """Return an executor as JSON shows it."""
    executor = view.executor
    return {
        "executorId": str(executor.executor_id),
        "host": executor.host,
        "pid": executor.pid,
        "state": duty_of(view, stale_after),
        "queues": list(executor.queues),
        "jobTypes": None if executor.job_types is None else list(executor.job_types),
        "held": view.held,
        "inCrew": executor.in_crew,
        "flowRunId": str(executor.flow_run_id) if executor.flow_run_id else None,
        "startedAt": for_programs(view.started_at),
        "lastSeenAt": for_programs(view.last_seen_at),
        "silenceSeconds": view.silence.total_seconds(),
        "idle": view.idle,
        "draining": view.draining,
    }
