"""Does history go when its time is over: ours by `jobs-purge`, and Prefect's own flow runs and events?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
from pydantic import TypeAdapter, ValidationError

from durable_jobs.cli.checks.findings import Finding, failed, ok, unknown, warning
from durable_jobs.moments import for_people
from durable_jobs.stores.retention import RetentionStore

NAME, PREFECT_NAME = "retention", "Prefect retention"
LONG_AGO = timedelta(hours=49)
"""A nightly purge that has not succeeded for so long has failed twice, or is not started."""
RUN_IT = "`prefect deployment run jobs-purge/nightly` runs it now, and its artifact says what is wrong"
_DURATION = TypeAdapter(timedelta)
VACUUM = "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED=events,flow_runs"


async def check_retention(store: RetentionStore, now: datetime) -> Finding:
    """Tell when a purge last succeeded; `now` is the database's.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    state = await store.purge_state()
    if state.failing_runs > 1:
        return failed(NAME, f"the last {state.failing_runs} purges failed: {state.last_fault}", RUN_IT)
    if state.failing_runs == 1:
        return warning(NAME, f"the last purge failed: {state.last_fault}", RUN_IT)
    if state.last_success_at is None:
        return ok(NAME, "no purge has run yet")
    told = f"the last purge succeeded at {for_people(state.last_success_at)}"
    if now - state.last_success_at > LONG_AGO:
        return warning(NAME, told, RUN_IT)
    return ok(NAME, told)


async def check_prefect_retention(client: httpx.AsyncClient) -> Finding:
    """Tell whether the server deletes its old flow runs; by default it never does."""
    answer = await client.get("admin/settings")
    if answer.is_error:
        message = f"the server does not tell its settings (HTTP {answer.status_code})"
        return unknown(PREFECT_NAME, message, f"see to it that it is started with {VACUUM}")
    server: dict[str, Any] = answer.json().get("server", {})
    vacuum: dict[str, Any] = server.get("services", {}).get("db_vacuum", {})
    enabled = vacuum.get("enabled")
    if enabled is True or (isinstance(enabled, list) and "flow_runs" in enabled):
        runs, events = vacuum.get("retention_period"), server.get("events", {}).get("retention_period")
        return ok(PREFECT_NAME, f"flow runs are kept for {_days(runs)}, events for {_days(events)}")
    return warning(
        PREFECT_NAME,
        "old flow runs are never deleted, and ours are some thousands a day",
        f"start the server with {VACUUM}",
    )


def _days(period: Any) -> str:
    try:
        return f"{_DURATION.validate_python(period) / timedelta(days=1):g} days"
    except ValidationError:
        return str(period)
