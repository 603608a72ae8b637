"""Asks everything that `check` tells, and turns what does not answer into a finding."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import httpx
import psycopg

from durable_jobs.cli.checks.clocks import Skew
from durable_jobs.cli.checks.database import (
    check_role,
    check_row_level_security,
    check_schema,
    check_server,
)
from durable_jobs.cli.checks.findings import Finding, failed, ok, unknown
from durable_jobs.cli.checks.job_modules import check_modules
from durable_jobs.cli.checks.on_duty import check_duty
from durable_jobs.cli.checks.outbox import check_outbox
from durable_jobs.cli.checks.prefect_api import address, check_api, check_deployments, open_client
from durable_jobs.cli.checks.recorder import check_recorder
from durable_jobs.cli.checks.recorder_lag import Lag
from durable_jobs.cli.checks.retention import check_prefect_retention, check_retention
from durable_jobs.errors import DurableJobsError
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.database import Database
from durable_jobs.urls import first_line

T = TypeVar("T")

CONNECT = (
    "start `durable-jobs up` and source the connection.env it writes, or correct DURABLE_JOBS_DATABASE_URL"
)
PREFECT_URL = "source the connection.env of `durable-jobs up`, or set PREFECT_API_URL (it ends with /api)"
ABOVE = "first deal with what is said above"
_DATABASE_ANSWERS = (DurableJobsError, psycopg.Error)
_PREFECT_ANSWERS = (httpx.HTTPError, httpx.InvalidURL, ValueError)


async def examine() -> list[Finding]:
    """Return all findings, in the order in which faults should be dealt with."""
    try:
        settings = Settings.load()
    except DurableJobsError as error:
        return [failed("settings", str(error), "correct the setting; nothing else can be looked at before")]
    skew, lag = Skew(), Lag()
    return [
        ok("settings", f"environment {settings.environment}, home {settings.home}"),
        check_modules(settings),
        *await _examine_database(settings, skew, lag),
        *await _examine_prefect(settings, skew, lag),
        skew.finding(),
    ]


async def _examine_database(settings: Settings, skew: Skew, lag: Lag) -> list[Finding]:
    try:
        database = _database(settings)
    except DurableJobsError as error:
        return _away("database", error, CONNECT, "schema", "shift on duty")
    async with PgJobsStore(database) as store:
        try:
            found = await check_server(database)
            now = await skew.look_at_database(database)
        except _DATABASE_ANSWERS as error:
            return _away("database", error, CONNECT, "schema", "shift on duty")
        for name, check in (
            ("schema", check_schema(database)),
            ("database role", check_role(database, settings)),
            ("row-level security", check_row_level_security(database)),
        ):
            found.append(await _told(name, check))
        try:
            found += await check_duty(store, settings, now)
            found.append(await check_outbox(store, now))
            found.append(await check_retention(store, now))
            await lag.look_at_database(store, now)
        except _DATABASE_ANSWERS as error:
            found.append(unknown("shift on duty", _said(error), ABOVE))
    return found


async def _examine_prefect(settings: Settings, skew: Skew, lag: Lag) -> list[Finding]:
    others = ("deployments", "task run recorder", "Prefect retention")
    try:
        client = open_client()
    except _PREFECT_ANSWERS as error:
        return _away("Prefect API", error, PREFECT_URL, *others)
    if client is None:
        return [unknown(name, "PREFECT_API_URL is not set", PREFECT_URL) for name in ("Prefect API", *others)]
    async with client:
        try:
            found = await check_api(client)
            await skew.look_at_prefect(client)
        except _PREFECT_ANSWERS as error:
            return _away("Prefect API", error, PREFECT_URL, *others, where=address(client))
        found.append(await _told("deployments", check_deployments(client)))
        found.append(await _told("task run recorder", check_recorder(client, settings)))
        found.append(await _told("task run lag", lag.finding(client)))
        found.append(await _told("Prefect retention", check_prefect_retention(client)))
    return found


def _database(settings: Settings) -> Database:
    return Database(
        settings.require_database_url(),
        timeout=settings.database_timeout,
        pool_size=1,
        prepared_statements=settings.prepared_statements,
    )


async def _told(name: str, check: Awaitable[Finding]) -> Finding:
    try:
        return await check
    except (*_DATABASE_ANSWERS, *_PREFECT_ANSWERS) as error:
        return unknown(name, _said(error), ABOVE)


def _said(error: Exception) -> str:
    """Return what went wrong without the URL, which httpx quotes and which may hold a login."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"{error.request.url.path} answers with HTTP {error.response.status_code}"
    return first_line(error)


def _away(name: str, error: Exception, way_out: str, *others: str, where: str = "") -> list[Finding]:
    """Return the failure of a part, and that nothing can be told of what hangs on it."""
    return [
        failed(name, f"{where}: {_said(error)}" if where else _said(error), way_out),
        *(unknown(other, f"{name} does not answer", ABOVE) for other in others),
    ]
