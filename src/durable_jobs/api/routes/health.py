"""Is the process alive, is it ready, is anybody on duty, is Redis well: four questions that do not mix."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from durable_jobs.api.access import AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Reader
from durable_jobs.api.models import RedisHealth, Workers
from durable_jobs.on_duty import as_document
from durable_jobs.redis_health import examine
from durable_jobs.redis_health.target import target_of_settings

router = APIRouter(tags=["health"])


class Live(BaseModel):
    """The process answers."""

    status: Literal["live"] = "live"


class Ready(BaseModel):
    """The process answers, and so does the job store."""

    status: Literal["ready"] = "ready"


@router.get("/health/live", response_model=Live)
async def live() -> Response:
    """Tell that this process answers, whatever becomes of the database: restart it when it does not."""
    return answer_json({"status": "live"})


@router.get("/health/ready", response_model=Ready)
async def ready(access: AppAccess) -> Response:
    """Tell that jobs can be submitted: send requests elsewhere while the answer is 503."""
    await access.require_ready()
    return answer_json({"status": "ready"})


@router.get("/health/workers", response_model=Workers, responses={503: {"model": Workers}})
async def workers(caller: Reader, access: AppAccess) -> Response:  # noqa: ARG001 -- its scope is checked
    """Tell who is on duty; 503 when nobody claims jobs. Submissions are taken all the same."""
    stale_after = access.settings.running_stale_after
    views = await (await access.store()).executors()
    claiming = [view for view in views if not view.draining and view.silence < stale_after]
    document = {"healthy": bool(claiming), "workers": [as_document(view, stale_after) for view in views]}
    return answer_json(document, status=200 if claiming else 503)


@router.get("/health/redis", response_model=RedisHealth, responses={503: {"model": RedisHealth}})
async def redis(caller: Reader, access: AppAccess) -> Response:  # noqa: ARG001 -- its scope is checked
    """Look at Redis now, with every check; 503 when one failed. Without a Redis there is nothing to be ill."""
    target = target_of_settings(access.settings)
    reports = [await examine(target)] if target is not None else []
    healthy = not any(report.failures for report in reports)
    document = {
        "configured": target is not None,
        "healthy": healthy,
        "targets": [report.as_json() for report in reports],
    }
    return answer_json(document, status=200 if healthy else 503)
