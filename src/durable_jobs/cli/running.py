"""Runs a command's work on an event loop, in a tenant's scope, with the store of this process."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import TypeVar

import typer

from durable_jobs.cli.where import require_database
from durable_jobs.logs import log_for_people
from durable_jobs.registry import Registry
from durable_jobs.runtime import Runtime, current_runtime
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope

T = TypeVar("T")

INTERRUPTED = 130


def with_store(tenant: str, work: Callable[[Runtime, PgJobsStore], Awaitable[T]]) -> T:
    """Do the work with an open store, and close it whatever happens.

    Raises:
        DurableJobsError: what the work raises, or the store cannot be used.
        typer.Exit: Ctrl-C, or what the work raises to end with a code.
    """
    require_database("this")
    runtime = current_runtime()

    async def opened() -> T:
        with job_tenant_scope(tenant):
            try:
                return await work(runtime, await runtime.store())
            finally:
                await runtime.close()

    quiet_logs(runtime.settings)
    try:
        return asyncio.run(opened())
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def declared(runtime: Runtime) -> Registry:
    """Return the declared types and queues; what a module prints while it loads is no answer.

    Raises:
        ModuleNotLoadable, InvalidDeclaration, UnknownQueue: naming the module or the declaration.
    """
    with redirect_stdout(sys.stderr):
        return runtime.registry


def quiet_logs(settings: Settings | None = None) -> None:
    """Keep stdout for answers; the pool's warning of each attempt becomes the one sentence at the end."""
    if settings is None:
        log_for_people()
    else:
        log_for_people(settings.log_level, settings.log_format)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def user() -> str:
    """Return who runs the command, for the record of who asked."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user id without a name
        return f"uid {os.getuid()}"
