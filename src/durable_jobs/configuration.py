"""The configuration as people may see it: settings without their secrets, queues, job types.

Invariant: no part of a secret leaves this module, not even one that cannot be parsed.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.errors import PydanticInvalidForJsonSchema
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from durable_jobs.job_types import JobType
from durable_jobs.policies import POLICIES
from durable_jobs.queues import Queue
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings

HIDDEN = "***"
_DURATION = TypeAdapter(timedelta)


def describe(settings: Settings, registry: Registry) -> dict[str, Any]:
    """Return the whole configuration as a camelCase document; durations are ISO 8601."""
    return {
        "settings": describe_settings(settings),
        "queues": [_queue(queue) for _, queue in sorted(registry.queues.items())],
        "jobTypes": [_job_type(declared) for _, declared in sorted(registry.job_types.items())],
        "policies": {
            name: {"maxRetries": policy.max_retries, "retryable": policy.retryable}
            for name, policy in sorted(POLICIES.items())
        },
    }


def describe_settings(settings: Settings) -> dict[str, Any]:
    """Return every setting with its secrets hidden."""
    return {to_camel(name): _setting(name, getattr(settings, name)) for name in type(settings).model_fields}


def iso(duration: timedelta) -> str:
    """Return a duration in ISO 8601."""
    return str(_DURATION.dump_python(duration, mode="json"))


def _setting(name: str, value: Any) -> Any:
    # Of a URL the address is worth showing; any other secret could be taken for one.
    if isinstance(value, SecretStr) and not name.endswith("_url"):
        return HIDDEN
    return _shown(value)


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return _without_secrets(value.get_secret_value())
    if isinstance(value, timedelta):
        return iso(value)
    if isinstance(value, tuple):
        return [_shown(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _without_secrets(text: str) -> str:
    """Return a URL's address only; a query may hold secrets as well."""
    try:
        url = make_url(text)
    except ArgumentError:
        return HIDDEN
    if not url.host:
        return f"{url.drivername}://{HIDDEN}"
    login = f"{url.username or ''}:{HIDDEN}@" if url.password else f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"{url.drivername}://{login}{url.host}{port}/{url.database or ''}"


def _queue(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "concurrency": queue.concurrency,
        "maxPending": queue.max_pending,
        "isolation": queue.isolation,
    }


def _job_type(declared: JobType) -> dict[str, Any]:
    return {
        "name": declared.name,
        "queue": declared.queue,
        "maxRetries": declared.max_retries,
        "retryable": declared.retryable,
        "retryBackoff": _backoff(declared),
        "timeout": iso(declared.timeout),
        "onOrphan": declared.on_orphan,
        "visibility": declared.visibility,
        "follows": declared.follows,
        "version": declared.version,
        "payload": _schema(declared.payload_model),
    }


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the payload's JSON schema; a model may hold what has none and be a payload all the same."""
    try:
        return model.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        return {"title": model.__name__, "description": f"No JSON schema: {error.message}"}


def _backoff(declared: JobType) -> str | None:
    backoff = declared.retry_backoff
    return iso(backoff) if isinstance(backoff, timedelta) else "as the request says" if backoff else None
