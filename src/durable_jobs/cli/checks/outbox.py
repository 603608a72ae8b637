"""Do events reach Prefect, or do they wait?"""

from __future__ import annotations

from datetime import datetime, timedelta

from durable_jobs.cli.checks.findings import Finding, ok, warning
from durable_jobs.outbox.store import EventOutbox

LATE = timedelta(minutes=5)
"""A shift publishes every few seconds and the reconciler every minute."""


async def check_outbox(store: EventOutbox, now: datetime) -> Finding:
    """Look at the events that Prefect is not known to have; `now` is the database's."""
    backlog = await store.event_backlog()
    if backlog.oldest_at is None:
        return ok("events", "none waits for Prefect")
    waited = timedelta(seconds=round((now - backlog.oldest_at).total_seconds()))
    message = f"{backlog.waiting + backlog.posted:,} wait for Prefect, the oldest for {waited}"
    if waited < LATE:
        return ok("events", message)
    return warning(
        "events",
        message,
        "they are kept and arrive when Prefect answers and a shift or jobs-reconcile runs; look at the lines about"
        " Prefect, and for PREFECT_API_AUTH_STRING where the flows run",
    )
