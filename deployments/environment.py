"""The environment of the stack's processes: what they share, and nothing of another Prefect.

The caller's PREFECT_* settings would point a child at another server, profile or database: only those about
logging are kept. Every process carries a mark, by which what a killed run left behind is found again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from durable_jobs.loading import absolute
from durable_jobs.settings import Settings

MARK = "DURABLE_JOBS_STACK"
# What the recorder settings of this server keep up with; one with default settings records 28 a second.
SHIFT_DEFAULTS = {"DURABLE_JOBS_VISIBLE_TASK_RUNS_PER_SECOND": "100"}
KEPT_PREFIX = "PREFECT_LOGGING_"
# The owner's URL stays with the process that migrates, the secret of tokens with the API.
NOT_HANDED_ON = {"admin_database_url", "database_url", "home", "modules", "jwt_secret"}


def base_environment(home: Path, prefect_port: int) -> dict[str, str]:
    """Return what every process of the stack gets: the caller's environment, the mark, this Prefect."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "DURABLE_JOBS_")) or name.startswith(KEPT_PREFIX)
    }
    if "PYTHONPATH" in kept:
        folders = kept["PYTHONPATH"].split(os.pathsep)
        kept["PYTHONPATH"] = os.pathsep.join(str(Path(folder).absolute()) for folder in folders)
    return kept | {
        MARK: str(home),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_API_URL": api_url(prefect_port),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_CLI_PROMPT": "false",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def api_url(prefect_port: int) -> str:
    """Return the address of this machine's Prefect API."""
    return f"http://127.0.0.1:{prefect_port}/api"


def application_environment(settings: Settings, home: Path, database_url: str) -> dict[str, str]:
    """Return the DURABLE_JOBS_* variables for flow runs: all that was set, paths absolute, no owner's URL."""
    own = {"DURABLE_JOBS_HOME": str(home), "DURABLE_JOBS_DATABASE_URL": database_url}
    return _given(settings) | own


def public_environment(settings: Settings) -> dict[str, str]:
    """Return the DURABLE_JOBS_* variables that anybody may read: all that was set, apart from secrets."""
    secret = {name for name in settings.model_fields_set if isinstance(getattr(settings, name), SecretStr)}
    return dict(sorted(_given(settings, without=secret).items()))


def _given(settings: Settings, without: Set[str] = frozenset()) -> dict[str, str]:
    given = {name: getattr(settings, name) for name in settings.model_fields_set - NOT_HANDED_ON - without}
    variables = {
        f"DURABLE_JOBS_{name.upper()}": _as_text(value) for name, value in given.items() if value is not None
    }
    if settings.modules:
        variables["DURABLE_JOBS_MODULES"] = ",".join(absolute(settings.modules))
    return variables


def write_lines(variables: Mapping[str, str]) -> str:
    """Return the variables as lines that any shell can source."""
    return "\n".join(f"export {name}='{_quoted(value)}'" for name, value in variables.items())


def _quoted(value: str) -> str:
    return value.replace("'", "'\\''")


def _as_text(value: Any) -> str:
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(value)
