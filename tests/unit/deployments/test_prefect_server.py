"""The settings of the stack's Prefect server mean something to the Prefect that is installed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from prefect.settings.models.root import Settings

from durable_jobs.deployments.prefect_server import server_settings


def test_ret5_prefect_deletes_its_own_old_flow_runs_and_events(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in server_settings(tmp_path, 4200, "postgresql+asyncpg://x@127.0.0.1/prefect").items():
        monkeypatch.setenv(name, value)
    server = Settings().server
    vacuum = server.services.db_vacuum
    assert vacuum.enabled_vacuum_types == {"events", "flow_runs", "orphans"}
    assert vacuum.retention_period == timedelta(days=30)
    assert server.events.retention_period == timedelta(days=7)
