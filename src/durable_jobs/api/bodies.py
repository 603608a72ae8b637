"""Reads a request's body before anything parses it, and refuses one that is too large.

A length that is announced is believed only to refuse at once; what arrives is counted, also in chunks.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from durable_jobs.api.problems import Refusal, render

ENVELOPE = 16_384
"""Bytes beside the payload: keys, options, white space."""


class BodyLimit:
    """Hands on a body that was read as a whole, and is no larger than the limit."""

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        """`most` is in bytes."""
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except Refusal as refusal:
            await render(refusal, scope.get("request_id"))(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body; None when the caller went away."""
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._most:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > self._most:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> Refusal:
        return Refusal(
            413,
            "body-too-large",
            f"the body is over {self._most:,} bytes (DURABLE_JOBS_MAX_PAYLOAD_BYTES and {ENVELOPE:,});"
            " store the data elsewhere and submit a reference to it",
            # What is left of the body is not read.
            headers={"Connection": "close"},
        )


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, then what the server has to say."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
