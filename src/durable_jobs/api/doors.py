"""Who comes in: a request is known by its token before its body is read, and works in its tenant's scope.

Without tokens, which is possible in development only, the door is open to this machine and to nobody else:
neither to another host nor to a web page that a browser here shows.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from durable_jobs.api.callers import EVERY_SCOPE, Caller
from durable_jobs.api.problems import Refusal, render
from durable_jobs.api.tokens import BadToken, TokenVerifier
from durable_jobs.api.translating import refusal_of
from durable_jobs.errors import StoreUnavailable
from durable_jobs.tenants import DEFAULT_TENANT, job_tenant_scope

logger = structlog.get_logger(__name__)

OPEN_TO_ALL = frozenset({"/health/live", "/health/ready", "/openapi.json", "/docs"})
LOCAL = Caller(DEFAULT_TENANT, "local", EVERY_SCOPE)
_CHALLENGE = 'Bearer realm="durable-jobs"'


class Door(Protocol):
    """Knows callers."""

    async def caller(self, scope: Scope, headers: Headers) -> Caller:
        """Return the caller, or raise a Refusal."""
        ...


class TokenDoor:
    """Knows callers by their tokens."""

    def __init__(self, verifier: TokenVerifier) -> None:
        """Check tokens with the verifier."""
        self._verifier = verifier

    async def caller(self, scope: Scope, headers: Headers) -> Caller:  # noqa: ARG002 -- see Door
        """Return the caller that the token names."""
        given = headers.getlist("authorization")
        if not given:
            raise _unknown("there is no token: send Authorization: Bearer TOKEN")
        kind, _, token = given[0].partition(" ")
        if len(given) > 1 or kind.lower() != "bearer" or not token.strip():
            raise _unknown("the header Authorization must be given once, as: Bearer TOKEN")
        try:
            return await self._verifier.caller(token.strip())
        except BadToken as error:
            raise _unknown(f"the token is not accepted: {error}", invalid=True) from error


class OpenDoor:
    """Lets in what comes from this machine, in the name of the default tenant."""

    async def caller(self, scope: Scope, headers: Headers) -> Caller:
        """Return the local caller."""
        client = scope.get("client")
        if client is None or not is_loopback(client[0]):
            raise _foreign("this API has no tokens configured and answers only to its own machine")
        host = headers.get("host", "")
        if not is_loopback(_name(host)):
            raise _foreign("the header Host must name this machine: 127.0.0.1, [::1] or localhost")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise _foreign("a web page of another origin may not use this API")
        return LOCAL


class Entrance:
    """Puts the caller into the request, and the request into the tenant's scope."""

    def __init__(self, app: ASGIApp, *, door: Door) -> None:
        """Ask the door about every request that is not open to all."""
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"] in OPEN_TO_ALL:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._door.caller(scope, Headers(scope=scope))
        except (Refusal, StoreUnavailable) as error:
            refusal = refusal_of(error, scope)
            logger.warning("denied", why=refusal.detail, **_told(scope))
            await render(refusal, scope.get("request_id"))(scope, receive, send)
            return
        scope["caller"] = caller
        with job_tenant_scope(caller.tenant):
            await self._app(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _name(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _told(scope: Scope) -> dict[str, object]:
    client = scope.get("client")
    return {
        "method": scope["method"],
        "path": scope["path"],
        "client": client[0] if client else None,
        "request_id": scope.get("request_id"),
    }


def _unknown(detail: str, *, invalid: bool = False) -> Refusal:
    challenge = f'{_CHALLENGE}, error="invalid_token"' if invalid else _CHALLENGE
    return Refusal(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})


def _foreign(detail: str) -> Refusal:
    return Refusal(
        403, "forbidden", f"{detail}; for others, set DURABLE_JOBS_JWT_SECRET or DURABLE_JOBS_JWT_JWKS"
    )
