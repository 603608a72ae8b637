"""Payloads of older versions, and whatever job code returns or raises: each job ends, and no other suffers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from durable_jobs import JobContext, job_type
from durable_jobs.executor.shift import Shift
from durable_jobs.job_types import MARK
from durable_jobs.jobs import ClaimedJob
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from durable_jobs.texts import Skipped, result_text
from tests.support.jobs import new_job


class Person(BaseModel):
    """The second version: one name instead of two."""

    name: str


def upgrade(old: dict[str, Any], version: int) -> dict[str, Any]:
    return {"name": f"{old['first']} {old['last']}"}


@job_type("GREET", version=2, upgrade=upgrade, visibility="history")
async def greet(request: Person, context: JobContext) -> str:
    """Return or raise what the name asks for."""
    match request.name:
        case "huge":
            return "x" * 2_000
        case "nul":
            return "a\x00b"
        case "raise nul":
            raise ValueError("a\x00b \ud800")
        case "raise huge":
            raise ValueError("x" * 5_000_000)
    return f"hello {request.name}"


async def test_each_ends_for_its_own_reason(pg_store: PgJobsStore) -> None:
    stored = {
        "upgraded": ({"first": "Ann", "last": "Lee"}, 1),
        "not upgradeable": ({"first": "Ann"}, 1),
        "does not fit": ({"full_name": "Ann"}, 2),
        "newer": ({"name": "Ann"}, 3),
        "plain": ({"name": "Ann"}, 2),
        "huge": ({"name": "huge"}, 2),
        "nul": ({"name": "nul"}, 2),
        "raise nul": ({"name": "raise nul"}, 2),
        "raise huge": ({"name": "raise huge"}, 2),
    }
    jobs = {
        name: new_job(data, job_type="GREET", queue="default", payload_version=version)
        for name, (data, version) in stored.items()
    }
    registry = Registry.of([getattr(greet, MARK)])
    settings = Settings.load(max_payload_bytes=1_000, poll_interval=timedelta(milliseconds=50))
    with job_tenant_scope("acme"):
        for job in jobs.values():
            await pg_store.register_idempotent([job])
        await Shift(pg_store, registry, settings, until_empty=True).run()
        ended = {name: await pg_store.get(job.job_id) for name, job in jobs.items()}
    results = {name: job.result for name, job in ended.items() if job.state == "SUCCEEDED"}
    assert results == {
        "upgraded": {"status": "OK", "value": "hello Ann Lee"},
        "plain": {"status": "OK", "value": "hello Ann"},
        "huge": {"status": "OK", "truncated": True},
        "nul": {"status": "OK", "value": "a\N{REPLACEMENT CHARACTER}b"},
    }
    reasons = {name: job.failed_reason or "" for name, job in ended.items() if job.state == "FAILED"}
    assert reasons.keys() == {"not upgradeable", "does not fit", "newer", "raise nul", "raise huge"}
    assert "cannot be upgraded from version 1 to 2: KeyError: 'last'" in reasons["not upgradeable"]
    assert "name: Field required" in reasons["does not fit"]
    assert "has version 3, this program knows 2" in reasons["newer"]
    assert reasons["raise nul"] == "ValueError: a\N{REPLACEMENT CHARACTER}b ?"
    assert reasons["raise huge"].endswith("(5,000,012 characters)")
    assert len(reasons["raise huge"]) == 4_000


class Unshowable:
    """Fails whatever is done to it."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


RESULTS = [
    Skipped(None),
    Unshowable(),
    10**5000,
    {"n": [10**5000]},
    float("nan"),
    {1: {2}},
    object(),
    b"\xff",
    "\ud800",
]


@pytest.mark.parametrize("value", RESULTS, ids=range(len(RESULTS)))
def test_any_result_can_be_stored(value: Any) -> None:
    document = json.loads(result_text(value, max_bytes=100_000))
    assert document["status"] in ("OK", "SKIPPED")
    result_text(value, max_bytes=10).encode()


async def test_the_message_of_a_progress_report_is_cut_and_can_be_stored() -> None:
    """Lists show it, and it is written once a second."""
    now, hour = datetime.now(UTC), timedelta(hours=1)
    claim = ClaimedJob(uuid4(), uuid4(), "acme", "T", "default", "{}", 1, 0, 3, uuid4(), None, now, hour)
    reports: list[str] = []
    context = JobContext(claim, lambda _, report: reports.append(report))
    context.progress(1, message="a\x00b" + "x" * 10_000_000)
    context.progress(2, 3, message=ValueError("no"))  # type: ignore[arg-type]
    first, second = map(json.loads, reports)
    assert len(first["message"]) == 500
    assert first["message"].startswith("a\N{REPLACEMENT CHARACTER}b")
    assert second == {"current": 2, "total": 3, "message": "no"}
