"""The tenant travels in a context variable, so no store method takes one.

Invariant: a write without a scope raises; asyncio tasks inherit the scope of their creator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from durable_jobs.errors import BadInput, MissingTenant

DEFAULT_TENANT = "default"
MAX_LENGTH = 255

_current: ContextVar[str | None] = ContextVar("durable_jobs_tenant", default=None)


@contextmanager
def job_tenant_scope(tenant_id: str) -> Iterator[str]:
    """Work in the name of a tenant inside the block.

    Raises:
        BadInput: the tenant id is empty, over 255 characters or holds NUL.
    """
    token = _current.set(validated(tenant_id))
    try:
        yield tenant_id
    finally:
        _current.reset(token)


def enter_tenant(tenant_id: str) -> None:
    """Work in the name of a tenant that the store has named, to the end of the current task.

    For the task of one job: thousands of these are made in a second.
    """
    _current.set(tenant_id)


def current_tenant() -> str | None:
    """Return the tenant of the surrounding scope, if any."""
    return _current.get()


def required_tenant() -> str:
    """Return the tenant of the surrounding scope.

    Raises:
        MissingTenant: outside of every scope.
    """
    tenant = _current.get()
    if tenant is None:
        raise MissingTenant(
            "no tenant: call this inside `with job_tenant_scope('acme'):`"
            f" (single-tenant programs use job_tenant_scope({DEFAULT_TENANT!r}))"
        )
    return tenant


def validated(tenant_id: str) -> str:
    """Return the tenant id, or raise BadInput when it cannot name a tenant."""
    if not tenant_id or len(tenant_id) > MAX_LENGTH or "\x00" in tenant_id:
        raise BadInput(f"tenant {tenant_id[:40]!r}: it must have 1 to {MAX_LENGTH} characters and no NUL")
    try:
        tenant_id.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"tenant {tenant_id!r}: it is not valid Unicode ({error.reason})") from error
    return tenant_id
