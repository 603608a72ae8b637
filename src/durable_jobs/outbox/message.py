"""An event as Prefect takes it: named, with the resources that automations match, and within Prefect's limits.

Prefect drops an event that is too large and answers as if it had it, so what is over the limit is cut
here. The severity is a label of the resource, because automations match labels and not payloads.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from durable_jobs.outbox.store import OutboxEvent

MAX_BYTES = 262_144
"""Of one event; Prefect's own limit is 1,500,000 and can be set lower."""
MAX_NAME = 1_024
_MAX_TEXT = 1_000
_MAX_ITEMS = 100


class Message(NamedTuple):
    """What is posted of an event."""

    event: OutboxEvent
    document: dict[str, Any]
    size: int
    """Bytes of JSON."""


def message_of(event: OutboxEvent) -> Message:
    """Return an event as Prefect takes it, cut to fit."""
    document = _document(event, {"severity": event.severity, **json.loads(event.payload)})
    size = _size(document)
    if size > MAX_BYTES:
        return _cut(event, document, size)
    return Message(event, document, size)


def barest(event: OutboxEvent) -> Message:
    """Return an event without what Prefect may have refused."""
    document = _document(event, {"severity": event.severity, "cut": "Prefect refused the whole event"})
    return Message(event, document | {"related": []}, _size(document))


def _document(event: OutboxEvent, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": str(event.event_id),
        "occurred": event.occurred_at.isoformat(),
        "event": event.event[:MAX_NAME],
        "resource": _resource(event, payload),
        "related": _related(event, payload),
        "payload": payload,
    }


def _resource(event: OutboxEvent, payload: dict[str, Any]) -> dict[str, str]:
    if event.job_id is not None:
        identity, name = f"job.{event.job_id}", f"{payload.get('jobType', 'job')} {event.job_id}"
    elif event.event.startswith("jobs.queue."):
        kind, held = (
            ("queue", payload.get("queue")) if "queue" in payload else ("job-type", payload.get("jobType"))
        )
        identity, name = f"{kind}.{held}", f"{kind} {held}"
    elif event.event.startswith("redis.health."):
        identity, name = f"redis.{payload.get('target', 'default')}", f"Redis {payload.get('target', '')}"
    elif event.tenant_id is not None:
        identity, name = f"tenant.{event.tenant_id}", f"tenant {event.tenant_id}"
    else:
        identity, name = "system", "durable-jobs"
    return {
        "prefect.resource.id": f"durable-jobs.{identity}"[:MAX_NAME],
        "prefect.resource.name": name[:MAX_NAME],
        "durable-jobs.severity": event.severity,
    }


def _related(event: OutboxEvent, payload: dict[str, Any]) -> list[dict[str, str]]:
    named = (
        ("tenant", "durable-jobs.tenant", event.tenant_id),
        ("queue", "durable-jobs.queue", payload.get("queue")),
        ("job-type", "durable-jobs.job-type", payload.get("jobType")),
        ("flow-run", "prefect.flow-run", event.flow_run_id),
        ("task-run", "prefect.task-run", event.task_run_id),
    )
    return [
        {"prefect.resource.id": f"{kind}.{value}"[:MAX_NAME], "prefect.resource.role": role}
        for role, kind, value in named
        if value is not None
    ]


def _cut(event: OutboxEvent, document: dict[str, Any], size: int) -> Message:
    """Shorten texts and lists; then leave the largest parts out until the rest fits."""
    payload = {key: _shortened(value) for key, value in document["payload"].items()}
    payload["cut"] = f"the event had {size:,} bytes"
    document = document | {"payload": payload}
    while (now := _size(document)) > MAX_BYTES:
        largest = max(
            (key for key in payload if key not in ("severity", "cut")), key=lambda k: _size(payload[k])
        )
        del payload[largest]
    return Message(event, document, now)


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else value[: _MAX_TEXT - 1] + "…"
    if isinstance(value, list):
        return [_shortened(item) for item in value[:_MAX_ITEMS]]
    if isinstance(value, dict):
        return {key[:_MAX_TEXT]: _shortened(item) for key, item in list(value.items())[:_MAX_ITEMS]}
    return value


def _size(value: Any) -> int:
    return len(json.dumps(value))
