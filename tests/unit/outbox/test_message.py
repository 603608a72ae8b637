"""What is posted of an event: its resources, and never more than Prefect takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from durable_jobs.outbox.message import MAX_BYTES, message_of
from durable_jobs.outbox.store import OutboxEvent


def event(payload: dict[str, Any], **changes: Any) -> OutboxEvent:
    at = datetime.now(UTC)
    made = OutboxEvent(
        uuid4(), "acme", "jobs.job.failed", uuid4(), "CRITICAL", json.dumps(payload), at, at, uuid4()
    )
    return made._replace(**changes)


def test_the_resource_is_the_job_and_carries_the_severity() -> None:
    told = event({"jobType": "WORK", "queue": "deep"})
    document = message_of(told).document
    assert document["resource"]["prefect.resource.id"] == f"durable-jobs.job.{told.job_id}"
    assert document["resource"]["durable-jobs.severity"] == "CRITICAL"
    assert {r["prefect.resource.role"]: r["prefect.resource.id"] for r in document["related"]} == {
        "tenant": "durable-jobs.tenant.acme",
        "queue": "durable-jobs.queue.deep",
        "job-type": "durable-jobs.job-type.WORK",
        "flow-run": f"prefect.flow-run.{told.flow_run_id}",
    }
    assert (document["id"], document["payload"]["severity"]) == (str(told.event_id), "CRITICAL")


def test_other_resources() -> None:
    names = [
        event({"target": "main"}, event="redis.health.recovered", job_id=None, tenant_id=None),
        event({}, job_id=None),
        event({}, job_id=None, tenant_id=None),
        event({"queue": "deep"}, event="jobs.queue.full", job_id=None, tenant_id=None),
        event({"jobType": "WORK"}, event="jobs.queue.paused", job_id=None, tenant_id=None),
    ]
    ids = [message_of(e).document["resource"]["prefect.resource.id"] for e in names]
    assert ids == [
        "durable-jobs.redis.main",
        "durable-jobs.tenant.acme",
        "durable-jobs.system",
        "durable-jobs.queue.deep",
        "durable-jobs.job-type.WORK",
    ]


def test_an_event_over_the_limit_is_cut_to_fit_and_says_so() -> None:
    message = message_of(event({"reason": "é" * 2_000_000, "ids": ["x" * 40] * 100_000, "jobs": 7}))
    payload = message.document["payload"]
    assert len(json.dumps(message.document).encode()) <= MAX_BYTES
    assert (payload["jobs"], len(payload["ids"]), len(payload["reason"])) == (7, 100, 1_000)
    assert "bytes" in payload["cut"]


def test_what_does_not_get_small_by_shortening_is_left_out() -> None:
    wide = {f"k{n}": {f"{m}": "x" * 900 for m in range(90)} for n in range(50)}
    message = message_of(event(wide, event="n" * 5_000))
    assert message.size <= MAX_BYTES
    assert len(message.document["event"]) == 1_024
    assert message.document["payload"]["severity"] == "CRITICAL"
