"""`token`: makes a token for the API, where its secret is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from durable_jobs.cli import arguments
from durable_jobs.cli.arguments import TENANT, Tenant
from durable_jobs.cli.output import answer
from durable_jobs.cli.running import user
from durable_jobs.errors import BadInput
from durable_jobs.runtime import current_runtime
from durable_jobs.settings import JWT_SECRET_FILE, Settings


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("token")(token)


def token(
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="submit, read or operate; repeat it for several. Without any: all.", show_default=False
        ),
    ] = None,
    tenant: Tenant = TENANT,
    subject: Annotated[
        str | None, typer.Option(help="Who it is for; without it, the user of this machine.")
    ] = None,
    lifetime: Annotated[str, typer.Option(help="How long it is good: 1h, 30d, P1D, ...")] = "1h",
) -> None:
    """Print a token for the API: for development, and for programs of people who know the secret.

    The secret is DURABLE_JOBS_JWT_SECRET, else the one that `durable-jobs up` keeps in its home.

    Example: durable-jobs token --scope submit --scope read --tenant acme --lifetime 30d
    """
    from durable_jobs.api.callers import Scope  # FastAPI loads slowly
    from durable_jobs.api.tokens import make_token

    known = {str(one): one for one in Scope}
    for name in scope or ():
        if name not in known:
            raise BadInput(f"--scope {name!r} is no scope; scopes are {', '.join(known)}")
    answer(
        make_token(
            _with_secret(current_runtime().settings),
            tenant=tenant,
            subject=subject or user(),
            scopes=[known[name] for name in scope or known],
            lifetime=arguments.duration("--lifetime", lifetime),
        )
    )


def _with_secret(settings: Settings) -> Settings:
    file: Path = settings.home / JWT_SECRET_FILE
    if settings.jwt_secret is not None or settings.jwt_jwks is not None or not file.is_file():
        return settings
    return settings.model_copy(update={"jwt_secret": SecretStr(file.read_text("utf-8").strip())})
