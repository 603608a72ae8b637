"""A database, a Prefect server, and what a flow finds in its environment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from prefect import get_client
from prefect.client.orchestration import PrefectClient

from durable_jobs.deployments.manifest import read_manifest
from durable_jobs.deployments.served import served
from durable_jobs.tasks import run_watching
from durable_jobs.tasks.runtimes import OpenRuntime, open_runtime
from tests.integration.flows.prefect_records import Records
from tests.integration.flows.their_deployments import Theirs

TIMES = {"HEARTBEAT_INTERVAL": "0.2", "RUNNING_STALE_AFTER": "0.8", "POLL_INTERVAL": "0.2"}


@pytest.fixture(autouse=True)
def environment(
    monkeypatch: pytest.MonkeyPatch,
    database_url: str,
    owner_connection: psycopg.Connection,
    prefect_harness: None,
) -> None:
    """What a worker's environment gives a flow run."""
    # The statistics know at once that the tables were emptied.
    owner_connection.execute("SELECT pg_stat_force_next_flush()")
    monkeypatch.setattr("durable_jobs.runtime._installed", None)
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", database_url)
    monkeypatch.setenv("DURABLE_JOBS_MODULES", "tests.integration.flows.work")
    for name, seconds in TIMES.items():
        monkeypatch.setenv(f"DURABLE_JOBS_{name}", seconds)


@pytest.fixture
async def runtime(environment: None) -> AsyncIterator[OpenRuntime]:
    """What a flow works with."""
    async with open_runtime() as runtime:
        yield runtime


@pytest.fixture
async def client(environment: None) -> AsyncIterator[PrefectClient]:
    async with get_client() as client:
        yield client


@pytest.fixture
async def records(client: PrefectClient) -> Records:
    return Records(client)


@pytest.fixture
async def deployed(client: PrefectClient) -> AsyncIterator[dict[str, UUID]]:
    """Every deployment without its cron, and no runs of earlier tests."""
    ids: dict[str, UUID] = {}
    for entry in read_manifest():
        deployment = served(entry | {"schedules": []})
        ids[deployment.full_name] = await deployment.aapply()
    yield ids
    for deployment_id in ids.values():
        await client.delete_deployment(deployment_id)


@pytest.fixture
async def theirs(client: PrefectClient, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Theirs]:
    """Deployments of somebody else, removed at the end."""
    monkeypatch.setattr(run_watching, "POLL", timedelta(milliseconds=200))
    theirs = Theirs(client)
    yield theirs
    await theirs.remove()


@pytest.fixture
def owner(urls: Any, owner_connection: psycopg.Connection) -> psycopg.Connection:
    return owner_connection
