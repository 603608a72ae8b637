"""The Prefect server of the stack: its settings, its command, and when it answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import httpx

from durable_jobs.deployments.children import Child
from durable_jobs.retention.periods import JOBS

FLOW_RUNS_KEPT = JOBS
EVENTS_KEPT = timedelta(days=7)


def server_settings(home: Path, port: int, database_url: str) -> dict[str, str]:
    """Return the server's settings; with them it keeps up with about 125 task runs a second (default: 28)."""
    return {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database_url,
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_ENABLED": "true",
        "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "prefect" / "ui"),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
        # By default old flow runs with their logs and artifacts are never deleted. They are kept as long as
        # jobs are, and events for a week.
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": f"{FLOW_RUNS_KEPT.total_seconds():.0f}",
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": f"P{EVENTS_KEPT.days}D",
    }


def prefect_server(home: Path, port: int, database_url: str, environment: Mapping[str, str]) -> Child:
    """Return the server process, not yet started."""
    return Child(
        "the Prefect server",
        [sys.executable, "-m", "prefect", "server", "start"],
        {**environment, **server_settings(home, port, database_url)},
        home / "logs" / "prefect-server.log",
        home,
    )


def answers(api_url: str) -> bool:
    """Tell whether the server answers and its database is there."""
    try:
        return httpx.get(f"{api_url}/ready", timeout=5).is_success
    except httpx.HTTPError:
        return False


def served_deployments(api_url: str, since: str) -> int:
    """Return how many deployments a runner has polled for after `since` (ISO 8601)."""
    try:
        answer = httpx.post(f"{api_url}/deployments/filter", json={}, timeout=10)
        answer.raise_for_status()
    except httpx.HTTPError:
        return 0
    return sum(1 for deployment in answer.json() if (deployment["last_polled"] or "") > since)
