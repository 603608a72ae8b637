"""The HTTP API of the stack: its process, when it answers, and what a shell needs to use it.

Where no secret for tokens is configured, the home keeps one: the API of a stack is never open.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import httpx
from pydantic import SecretStr

from durable_jobs.api.callers import EVERY_SCOPE
from durable_jobs.api.tokens import make_token
from durable_jobs.deployments.children import Child
from durable_jobs.deployments.databases import kept_secret
from durable_jobs.settings import JWT_SECRET_FILE, Settings
from durable_jobs.tenants import DEFAULT_TENANT

TOKEN_LIFETIME = timedelta(days=365)
"""The token lies beside the database's password, which is good for ever."""
SUBJECT = "up"


def with_tokens(settings: Settings, home: Path) -> Settings:
    """Return settings that check tokens: as configured, else by the secret that the home keeps."""
    if settings.jwt_secret is not None or settings.jwt_jwks is not None:
        return settings
    return settings.model_copy(update={"jwt_secret": SecretStr(kept_secret(home / JWT_SECRET_FILE))})


def api_server(home: Path, port: int, settings: Settings, environment: Mapping[str, str]) -> Child:
    """Return the API's process, not yet started; `environment` has everything but the secret of tokens."""
    secret = {}
    if settings.jwt_secret is not None:
        secret = {"DURABLE_JOBS_JWT_SECRET": settings.jwt_secret.get_secret_value()}
    return Child(
        "the HTTP API",
        [sys.executable, "-m", "durable_jobs", "api", "--port", str(port)],
        {**environment, **secret},
        home / "logs" / "api.log",
        home,
    )


def api_url(port: int) -> str:
    """Return the address of this machine's HTTP API."""
    return f"http://127.0.0.1:{port}"


def is_ready(port: int) -> bool:
    """Tell whether the API answers and takes jobs."""
    try:
        return httpx.get(f"{api_url(port)}/health/ready", timeout=5).is_success
    except httpx.HTTPError:
        return False


def api_variables(port: int, settings: Settings) -> dict[str, str]:
    """Return what a client of the API reads; without a secret here, nobody here can make a token."""
    variables = {"DURABLE_JOBS_API_URL": api_url(port)}
    if settings.jwt_secret is not None:
        variables["DURABLE_JOBS_TOKEN"] = make_token(
            settings, tenant=DEFAULT_TENANT, subject=SUBJECT, scopes=EVERY_SCOPE, lifetime=TOKEN_LIFETIME
        )
    return variables
