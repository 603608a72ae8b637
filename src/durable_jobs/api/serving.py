"""Runs the API as a program: what must be true before it listens, and how it listens.

Invariant: without tokens it listens on this machine only, and only in development.
"""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

from durable_jobs.api.app import create_app
from durable_jobs.api.doors import is_loopback
from durable_jobs.api.tokens import verifier_of
from durable_jobs.errors import InvalidSettings
from durable_jobs.logs import log_as_service
from durable_jobs.runtime import current_runtime
from durable_jobs.settings import Settings

FACTORY = "durable_jobs.api.serving:app_of_environment"
BACKLOG = 1024
IDLE_S = 30


def app_of_environment() -> FastAPI:
    """Return the application of this process's settings, for any ASGI server."""
    runtime = current_runtime()
    log_as_service(runtime.settings.log_level, runtime.settings.log_format)
    return create_app(runtime.settings, runtime.registry)


def require_safe(settings: Settings, host: str) -> None:
    """Return when it is safe to listen on the host.

    Raises:
        InvalidSettings: without tokens outside development, or to other machines.
    """
    if verifier_of(settings) is not None:
        return
    way_out = "set DURABLE_JOBS_JWT_SECRET (HS256) or DURABLE_JOBS_JWT_JWKS (RS256, ES256)"
    if settings.environment != "development":
        raise InvalidSettings(f"the API does not start without tokens in {settings.environment}: {way_out}")
    if not is_loopback(host):
        raise InvalidSettings(
            f"the API does not listen on {host} without tokens, since everybody there could operate jobs:"
            f" {way_out}, or listen on 127.0.0.1"
        )


def serve(settings: Settings, *, host: str, port: int, workers: int = 1) -> None:
    """Listen until SIGINT or SIGTERM; requests that run are answered first.

    Raises:
        InvalidSettings: it is not safe, or a setting cannot work.
    """
    require_safe(settings, host)
    settings.require_database_url()
    uvicorn.run(
        FACTORY,
        factory=True,
        host=host,
        port=port,
        workers=workers,
        backlog=BACKLOG,
        server_header=False,
        access_log=False,
        # Ours is set when the application is made; uvicorn's lines go through it.
        log_config=None,
        # What a proxy says of its clients is nothing that this API needs.
        proxy_headers=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=max(1, round(settings.api_request_timeout.total_seconds())),
    )
