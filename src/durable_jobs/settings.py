"""Every setting, from the environment, a `.env` file or files in a secrets folder.

Precedence: environment, then `.env`, then the secrets folder (DURABLE_JOBS_SECRETS_DIR).
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from durable_jobs.errors import InvalidSettings
from durable_jobs.logs import LogFormat, LogLevel

JWT_SECRET_FILE = "jwt-secret"  # noqa: S105 -- the name of a file
"""File in the home in which `durable-jobs up` keeps the secret of its API."""

Environment = Literal["development", "staging", "production"]


def _duration(value: Any) -> Any:
    """Accept plain seconds as text too; pydantic itself takes ISO 8601."""
    if isinstance(value, str):
        try:
            return timedelta(seconds=float(value))
        except (ValueError, OverflowError):
            return value
    return value


def _absolute(folder: Path) -> Path:
    if not folder.is_absolute():
        raise ValueError(f"{folder} is not absolute; write the folder from / on")
    return folder


AbsoluteFolder = Annotated[Path, AfterValidator(_absolute)]
Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0))]


class Settings(BaseSettings):
    """Settings of durable-jobs; each is the upper-case name behind `DURABLE_JOBS_`."""

    model_config = SettingsConfigDict(
        env_prefix="DURABLE_JOBS_", env_file=".env", extra="ignore", frozen=True, validate_default=True
    )

    database_url: SecretStr | None = Field(
        None, description="Postgres URL of the application's role (postgresql://...)."
    )
    admin_database_url: SecretStr | None = Field(
        None, description="Postgres URL of the owner; migrations only."
    )
    home: Path = Field(
        default_factory=lambda: default_home(),
        description="Folder of the embedded Postgres, Prefect's home and connection.env.",
    )
    environment: Environment = Field("development", description="development, staging or production.")
    modules: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Comma-separated module names or .py paths that declare job types and queues."
    )
    archive_sources: Annotated[tuple[AbsoluteFolder, ...], NoDecode] = Field(
        (),
        description="Comma-separated folders that DOCUMENT_ARCHIVE may read from;"
        " empty: every folder in development, none otherwise.",
    )
    archive_stores: Annotated[tuple[AbsoluteFolder, ...], NoDecode] = Field(
        (),
        description="Comma-separated folders that DOCUMENT_ARCHIVE may write to;"
        " empty: every folder in development, none otherwise.",
    )
    notification_block: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9-]*/.+$",
        description="Block of Prefect that is told of CRITICAL events, as type-slug/name.",
    )
    redis_url: SecretStr | None = Field(None, description="Redis to watch (optional).")
    running_stale_after: Duration = Field(
        timedelta(seconds=60), description="Silence of an executor after which its jobs are orphans."
    )
    pending_stale_after: Duration = Field(
        timedelta(seconds=120), description="Wait after which an isolated job is looked for in Prefect."
    )
    heartbeat_interval: Duration = Field(
        timedelta(seconds=10), description="How often an executor tells that it lives."
    )
    shutdown_grace: Duration = Field(
        timedelta(seconds=30), description="How long running jobs may go on after SIGTERM."
    )
    poll_interval: Duration = Field(
        timedelta(seconds=1), description="How often a shift looks for work when nothing wakes it."
    )
    database_timeout: Duration = Field(timedelta(seconds=10), description="Bound of every database call.")
    pool_size: int = Field(5, ge=2, description="Connections a process keeps to Postgres.")
    prepared_statements: bool = Field(
        True, description="Set to false behind a transaction pooler such as PgBouncer."
    )
    max_payload_bytes: int = Field(
        1_048_576, ge=1, description="Largest payload and largest result, in bytes of JSON."
    )
    max_payload_depth: int = Field(64, ge=1, description="Deepest nesting of a payload.")
    max_crashes: int = Field(3, ge=1, description="Crashes of its executor after which a job is given up.")
    min_retention: Duration = Field(
        timedelta(days=1), description="Shortest time that a purge may keep history."
    )
    crew: int = Field(1, ge=1, description="How many shifts claim at once.")
    visible_task_runs_per_second: float = Field(
        20.0, ge=0, description="Most jobs a shift shows as Prefect task runs each second."
    )
    log_format: LogFormat = Field(
        "auto",
        description="json, text, or auto: what serves logs JSON unless on a terminal, commands log text.",
    )
    log_level: LogLevel = Field("INFO", description="DEBUG, INFO, WARNING or ERROR.")

    jwt_secret: SecretStr | None = Field(
        None, description="Secret of at least 32 bytes that signs the API's tokens (HS256)."
    )
    jwt_jwks: str | None = Field(
        None,
        description="File or https URL of the JWKS whose keys sign the API's tokens, instead of a secret.",
    )
    jwt_algorithm: Literal["HS256", "RS256", "ES256"] | None = Field(
        None,
        description="The one algorithm that tokens may use: HS256 with a secret; RS256 or ES256 with a JWKS.",
    )
    jwt_audience: str = Field("durable-jobs", min_length=1, description="Audience that tokens must name.")
    jwt_issuer: str | None = Field(None, description="Issuer that tokens must name, if one is set.")
    jwt_tenant_claim: str = Field(
        "tenant", description="Claim that names the tenant; empty: every token is of the tenant `default`."
    )
    jwt_leeway: Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(0))] = Field(
        timedelta(0), description="How far the clocks of issuer and API may be apart."
    )
    api_rate_limit: int = Field(
        100,
        ge=0,
        description="Submissions a tenant may make each minute over all API processes; 0: no limit.",
    )
    api_request_timeout: Duration = Field(
        timedelta(seconds=10), description="Longest time the API takes for a request."
    )
    api_max_in_flight: int = Field(
        500, ge=1, description="Requests an API process works on at once; further ones are refused."
    )
    api_own_jobs_only: bool = Field(
        False, description="Show a caller without the scope `operate` only the jobs that it submitted."
    )

    @field_validator("database_url", "admin_database_url", "redis_url", mode="before")
    @classmethod
    def _unset(cls, value: Any) -> Any:
        # Compose files and the like hand on what is not set as an empty text.
        return None if value == "" else value

    @field_validator("modules", "archive_sources", "archive_stores", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the settings.

        Raises:
            InvalidSettings: naming each setting, its value's fault and what is expected.
            InsecureRedisURL: Redis without TLS or without a password, outside development.
        """
        secrets = os.environ.get("DURABLE_JOBS_SECRETS_DIR")
        if secrets and not Path(secrets).is_dir():
            raise InvalidSettings(
                f"DURABLE_JOBS_SECRETS_DIR: {secrets} is not a folder; deliver the secrets first, or leave it unset"
            )
        try:
            settings = cls(_secrets_dir=secrets or None, **overrides)
        except ValidationError as error:
            raise InvalidSettings("; ".join(_explain(e) for e in error.errors())) from error
        if settings.redis_url is not None:
            from durable_jobs.redis_health.target import refuse_insecure_url  # few configure Redis

            refuse_insecure_url(settings.redis_url, settings.environment)
        return settings

    def require_database_url(self) -> str:
        """Return the database URL.

        Raises:
            InvalidSettings: none is set.
        """
        if self.database_url is None:
            raise InvalidSettings(
                "DURABLE_JOBS_DATABASE_URL is not set: start `durable-jobs up` and source the connection.env"
                " it writes, or set it to the URL of your Postgres"
            )
        return self.database_url.get_secret_value()


def default_home() -> Path:
    """Return `~/.durable-jobs`; as root a folder under /var/lib, since Postgres runs as another user."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/durable-jobs")
    return Path.home() / ".durable-jobs"


def _explain(error: Any) -> str:
    name = "DURABLE_JOBS_" + "_".join(str(part).upper() for part in error["loc"])
    shown = "" if "URL" in name or "JWT" in name else f" (it is {error['input']!r})"
    return f"{name}: {error['msg']}{shown}"
