"""Who asks, and what a caller may do. Tenant and subject come from the token alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import structlog
from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from durable_jobs.api.problems import Refusal

logger = structlog.get_logger(__name__)


class Scope(StrEnum):
    """What a token allows."""

    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"


EVERY_SCOPE = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant and the subject of a request, and its scopes."""

    tenant: str
    subject: str
    scopes: frozenset[Scope]


# Only describes the scheme in the OpenAPI document; the token was checked before the body was read.
_BEARER = HTTPBearer(auto_error=False, description="A JWT with the scopes `submit`, `read`, `operate`.")


def needing(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """Return a dependency that gives the caller, or refuses one whose token lacks the scope."""

    told = Security(_BEARER, scopes=[str(scope)])

    async def check(request: Request, _: object = told) -> Caller:
        caller: Caller = request.scope["caller"]
        if scope in caller.scopes:
            return caller
        logger.warning(
            "denied", why=f"scope {scope} is missing", tenant=caller.tenant, subject=caller.subject,
            method=request.method, path=request.url.path,
        )  # fmt: skip
        raise Refusal(
            403,
            "insufficient-scope",
            f"the token lacks the scope {str(scope)!r} (it has {', '.join(sorted(caller.scopes)) or 'none'});"
            " use a token with that scope",
            headers={
                "WWW-Authenticate": f'Bearer realm="durable-jobs", error="insufficient_scope", scope="{scope}"'
            },
        )

    return check


Submitter = Annotated[Caller, Depends(needing(Scope.SUBMIT))]
Reader = Annotated[Caller, Depends(needing(Scope.READ))]
Operator = Annotated[Caller, Depends(needing(Scope.OPERATE))]
