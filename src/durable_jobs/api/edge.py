"""The outermost layer: every request has an id, a bound of time, and an answer with the same safe headers.

Invariant: whatever happens inside, the answer is a problem document; a request never waits longer than its
bound, and no more than a bound of requests is worked on at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from durable_jobs.api.problems import Refusal, render, retry_after

logger = structlog.get_logger(__name__)

REQUEST_ID = "X-Request-Id"
_GOOD_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
DOCS = "/docs"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NOTHING_LOADED = "default-src 'none'; frame-ancestors 'none'"
# The page of the OpenAPI document is the only one for a browser; it loads its scripts from there.
_PAGE = (
    "default-src 'self'; script-src 'unsafe-inline' https://cdn.jsdelivr.net;"
    " style-src 'unsafe-inline' https://cdn.jsdelivr.net;"
    " img-src 'self' data: https://fastapi.tiangolo.com; frame-ancestors 'none'"
)

Bounds = Mapping[tuple[str, str], timedelta]


class Edge:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, *, timeout: timedelta, longer: Bounds, most_in_flight: int) -> None:
        """`longer` has the bounds of what takes longer, by method and path."""
        self._app, self._timeout, self._longer, self._most = app, timeout, longer, most_in_flight
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        scope["request_id"] = given if _GOOD_ID.fullmatch(given) else str(uuid4())
        answer = _Answer(scope, send)
        if self._in_flight >= self._most:
            await answer.refuse(receive, _busy(self._most))
            return
        self._in_flight += 1
        try:
            await self._bounded(scope, receive, answer)
        finally:
            self._in_flight -= 1

    async def _bounded(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        bound = self._longer.get((scope["method"], scope["path"]), self._timeout)
        try:
            async with asyncio.timeout(bound.total_seconds()) as clock:
                await self._app(scope, receive, answer.send)
        except Exception as error:
            # A TimeoutError of something inside is a fault like any other, and not this clock.
            if isinstance(error, TimeoutError) and clock.expired():
                logger.warning("a request took too long", **_told(scope), seconds=bound.total_seconds())
                await answer.refuse(receive, _too_long(bound))
                return
            logger.error("a request failed", **_told(scope), exc_info=error)
            await answer.refuse(receive, _fault())


class _Answer:
    """Adds the headers to an answer, and knows whether it has begun."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send, self._begun = scope, send, False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            policy = _PAGE if self._scope["path"] == DOCS else _NOTHING_LOADED
            headers["Content-Security-Policy"] = policy
            headers[REQUEST_ID] = self._scope["request_id"]
            if self._scope["scheme"] == "https":
                headers["Strict-Transport-Security"] = "max-age=31536000"
        await self._send(message)

    async def refuse(self, receive: Receive, refusal: Refusal) -> None:
        if not self._begun:
            await render(refusal, self._scope["request_id"])(self._scope, receive, self.send)


def _told(scope: Scope) -> dict[str, str]:
    return {"method": scope["method"], "path": scope["path"], "request_id": scope["request_id"]}


def _busy(most: int) -> Refusal:
    return Refusal(
        503, "busy", f"{most} requests are being worked on; try again in a moment", headers=retry_after(1)
    )


def _too_long(bound: timedelta) -> Refusal:
    return Refusal(
        503,
        "timeout",
        f"this took longer than {bound.total_seconds():g} s, so it is not known to have been done; try again"
        " (a submission with an idempotency key can be repeated without harm)",
        headers=retry_after(2),
    )


def _fault() -> Refusal:
    return Refusal(
        500, "internal-error", "a fault of this server; its log tells more by the X-Request-Id of this answer"
    )
