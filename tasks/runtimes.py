"""The runtime of a flow run: from its environment, or from the block when no database is set there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from prefect.exceptions import ObjectNotFound

from durable_jobs.blocks.jobs_database import BLOCK_NAME, JobsDatabase
from durable_jobs.errors import InvalidSettings
from durable_jobs.registry import Registry
from durable_jobs.runtime import Runtime, install
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tasks.flow_logs import log_in_flows
from durable_jobs.tasks.lasting_output import outlive_reader


class OpenRuntime(NamedTuple):
    """What a flow works with."""

    store: PgJobsStore
    registry: Registry
    settings: Settings


async def load_settings() -> Settings:
    """Return the settings, with the block's database when none is set.

    Raises:
        InvalidSettings: neither a setting nor the block names a database.
    """
    settings = Settings.load()
    if settings.database_url is None:
        return Settings.load(database_url=(await _block()).url())
    return settings


@asynccontextmanager
async def open_runtime() -> AsyncIterator[OpenRuntime]:
    """Open the store for one flow run; settings win over the block.

    Raises:
        InvalidSettings: neither a setting nor the block names a database.
        StoreUnavailable, SchemaOutdated, UnsafeDatabaseRole, ModuleNotLoadable.
    """
    outlive_reader()
    settings = await load_settings()
    log_in_flows(settings)
    runtime = install(Runtime(settings))
    registry = runtime.registry
    store = await runtime.store()
    try:
        yield OpenRuntime(store, registry, settings)
    finally:
        await runtime.close()


async def _block() -> JobsDatabase:
    try:
        return await JobsDatabase.aload(BLOCK_NAME)
    except (ValueError, ObjectNotFound) as error:
        raise InvalidSettings(
            "no database: set DURABLE_JOBS_DATABASE_URL for the worker, or make the block"
            f" jobs-database/{BLOCK_NAME} (durable-jobs deploy does)"
        ) from error
