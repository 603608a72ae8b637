"""One line in the log for each request: what was asked, by whom, about which job, and how it ended.

All lines that are written meanwhile carry the request's id too. What is asked every few seconds is no news.
"""

from __future__ import annotations

import re
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = structlog.get_logger(__name__)

_JOB_PATH = re.compile(r"/jobs/([0-9a-fA-F-]{36})(?:/|$)")
_ASKED_OFTEN = ("/health/", "/metrics")


class RequestLog:
    """Writes the line; inside the edge, which gives requests their ids."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap the application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = 0, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=scope["request_id"], **_job_of(scope["path"]))
        try:
            await self._app(scope, receive, noted)
        finally:
            _tell(scope, status, time.perf_counter() - began)


def name_job(job_id: object, correlation_id: str | None) -> None:
    """Name the job that this request made, in its line and in all that follow."""
    named = {"job_id": str(job_id)}
    if correlation_id is not None:
        named["correlation_id"] = correlation_id
    structlog.contextvars.bind_contextvars(**named)


def _job_of(path: str) -> dict[str, str]:
    found = _JOB_PATH.search(path)
    return {"job_id": found[1].lower()} if found else {}


def _tell(scope: Scope, status: int, seconds: float) -> None:
    caller = scope.get("caller")
    who = {} if caller is None else {"tenant_id": caller.tenant, "subject": caller.subject}
    tell = logger.debug if scope["path"].startswith(_ASKED_OFTEN) and status < 400 else logger.info
    tell(
        "request",
        method=scope["method"],
        path=scope["path"],
        # 0: the caller went away, or the bound of time ended it.
        status=status,
        ms=round(seconds * 1000, 1),
        **who,
    )
