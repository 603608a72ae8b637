"""Registration for sync applications: the same rules, one statement on a sync connection."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from datetime import datetime
from functools import lru_cache
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from durable_jobs.jobs import Job
from durable_jobs.payloads import Data
from durable_jobs.registration import chunked, distinct, merged, prepare, prepare_many
from durable_jobs.runtime import current_runtime
from durable_jobs.stores.postgres.bound import hung_up_after
from durable_jobs.stores.postgres.database import connection_options, translate
from durable_jobs.stores.postgres.within import sync_within
from durable_jobs.tenants import DEFAULT_TENANT, current_tenant, job_tenant_scope


def register_job(
    type: str,  # noqa: A002 -- as in durable_jobs.register_job
    data: Data,
    *,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
    connection: Any = None,
) -> Job:
    """Register one job; see `durable_jobs.register_job`.

    `connection` is an SQLAlchemy Connection or Session, or a psycopg Connection.
    """
    runtime = current_runtime()
    job = prepare(
        runtime.registry,
        runtime.settings,
        type,
        data,
        idempotency_key=idempotency_key,
        correlation_id=correlation_id,
        priority=priority,
        run_at=run_at,
    )
    return _register([job], connection)[0]


def register_jobs(
    type: str,  # noqa: A002 -- as in durable_jobs.register_job
    data: Iterable[Data],
    *,
    priority: int = 0,
    run_at: datetime | None = None,
    correlation_id: str | None = None,
    connection: Any = None,
) -> list[Job]:
    """Register many jobs of one type; see `durable_jobs.register_jobs`."""
    runtime = current_runtime()
    jobs: list[Job] = []
    for first, chunk in chunked(data):
        prepared = prepare_many(
            runtime.registry,
            runtime.settings,
            type,
            chunk,
            first=first,
            priority=priority,
            run_at=run_at,
            correlation_id=correlation_id,
        )
        jobs += _register(prepared, connection)
    return jobs


def _register(jobs: list[Any], connection: Any) -> list[Job]:
    to_insert, positions = distinct(jobs)
    scope = nullcontext() if current_tenant() is not None else job_tenant_scope(DEFAULT_TENANT)
    with scope:
        if connection is not None:
            registered = sync_within(connection).register_idempotent(to_insert)
        else:
            try:
                bound = current_runtime().settings.database_timeout
                with _pool().connection() as own, hung_up_after(bound, own):
                    registered = sync_within(own).register_idempotent(to_insert)
            except (psycopg.Error, PoolTimeout) as error:
                raise translate(error) from error
    return [answer.job for answer in merged(registered, positions)]


@lru_cache(maxsize=1)
def _pool() -> ConnectionPool[psycopg.Connection[Any]]:
    settings = current_runtime().settings
    options = connection_options(
        settings.require_database_url(), prepared_statements=settings.prepared_statements
    )
    return ConnectionPool(
        options.pop("conninfo"),
        kwargs=options,
        min_size=0,
        max_size=settings.pool_size,
        timeout=settings.database_timeout.total_seconds(),
        open=True,
    )
