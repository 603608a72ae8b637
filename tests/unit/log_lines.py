"""A program that serves: it logs from its own loggers, from the standard library's, in jobs, and in threads."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import structlog

from durable_jobs.jobs import ClaimedJob
from durable_jobs.logs import LogFormat, LogLevel, log_as_service, work_on
from durable_jobs.tenants import job_tenant_scope

ours, library = structlog.get_logger("durable_jobs.anything"), logging.getLogger("a.package")

# In no line of the source, which a traceback shows.
LOCAL = "-".join(("invented", "4"))


def job(number: int, correlation_id: str | None) -> ClaimedJob:
    named = UUID(int=number)
    at, hour = datetime.now(UTC), timedelta(hours=1)
    return ClaimedJob(
        named, named, f"tenant-{number}", "WORK", "work", "{}", 1, 0, 3, named, correlation_id, at, hour
    )


def refuse(password: str) -> None:
    raise ValueError("no")


async def execute(number: int, correlation_id: str | None) -> None:
    work_on(job(number, correlation_id))
    ours.info("ours", n=number, password="invented-1", url="postgresql://me:invented-2@host/db")
    library.info("theirs %s", "of a package")
    await asyncio.to_thread(library.warning, "in a thread, Bearer invented-3")
    try:
        refuse(LOCAL)
    except ValueError:
        ours.exception("failed")


async def main() -> None:
    log_as_service(cast("LogLevel", sys.argv[2]), cast("LogFormat", sys.argv[1]))
    ours.debug("not said")
    ours.info("of nobody")
    with job_tenant_scope("acme"):
        ours.info("of a tenant")
    await asyncio.gather(execute(1, "order-1"), execute(2, None))


if __name__ == "__main__":
    asyncio.run(main())
