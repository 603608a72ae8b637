"""What people on duty watch: figures for Prometheus, and a log that names jobs, tenants and requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from durable_jobs.api.callers import Scope
from tests.support.api_server import ApiServer
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.history import add_jobs

PATIENT = timedelta(seconds=60)


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a family by the values of their labels, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def submitted(caller: httpx.Client, key: str) -> bool:
    """Submit a job; a connection that a test before has cut is found by the first who uses it."""
    job = {"type": "ECHO", "data": {"text": "x"}, "idempotencyKey": key}
    return caller.post("/jobs", json=job).status_code == 202


def test_figures_are_for_people_on_duty_only(api: ApiServer) -> None:
    for scopes in ([Scope.SUBMIT], [Scope.READ], []):
        with api.client(scopes=scopes) as caller:
            assert caller.get("/metrics").status_code == 403
    assert httpx.get(f"{api.url}/metrics").status_code == 401


async def test_figures_are_of_all_tenants_and_name_none(
    api: ApiServer, owner_connection: psycopg.Connection
) -> None:
    with api.client(scopes=[Scope.SUBMIT]) as one, api.client(tenant="globex") as other:
        for caller in (one, other, other):
            await eventually(partial(submitted, caller, str(uuid4())), PATIENT)
    add_jobs(owner_connection, 40, timedelta(0), tenant="acme", job_type="ECHO")

    with api.client(scopes=[Scope.OPERATE]) as prometheus:

        async def all_seen() -> httpx.Response | None:
            answer = prometheus.get("/metrics")
            assert answer.status_code == 200
            seen = values(answer.text, "durable_jobs_jobs").get(("wide", "PENDING"))
            return answer if seen == 3 else None

        # A reading is shared for a second or longer.
        answer = await eventually(all_seen, PATIENT, every=timedelta(milliseconds=300))
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert values(answer.text, "durable_jobs_recent_jobs")["ECHO", "succeeded", "(undeclared)"] == 40
    for tenant in ("acme", "globex"):
        assert tenant not in answer.text


def test_without_tokens_this_machine_may_look_also_while_the_database_is_away(
    new_database: Callable[[], Urls],
) -> None:
    urls = new_database()
    away = urls.application.replace(f"/{urls.application.rpartition('/')[2]}", "/there_is_none")
    server = ApiServer(away, DURABLE_JOBS_DATABASE_TIMEOUT="2")
    try:
        server.wait_until_live()
        answer = httpx.get(f"{server.url}/metrics", timeout=60)
        assert (answer.status_code, values(answer.text, "durable_jobs_up")) == (200, {(): 0})
    finally:
        server.stop()


async def test_every_request_leaves_a_line_that_names_the_job_and_no_secret(api: ApiServer) -> None:
    with api.client() as caller:
        authorization = caller.headers["Authorization"]
        made = caller.post(
            "/jobs",
            json={"type": "ECHO", "data": {"text": "a private text"}, "correlationId": "order-7"},
            headers={"X-Request-Id": "request-1"},
        ).json()
        caller.get(f"/jobs/{made['jobId']}", headers={"X-Request-Id": "request-2"})
        caller.get("/health/live", headers={"X-Request-Id": "request-3"})
        del caller.headers["Authorization"]
        caller.get("/jobs", headers={"X-Request-Id": "request-4"})

    def lines() -> dict[str, dict[str, Any]] | None:
        found = [json.loads(line) for line in api.log.splitlines() if line.startswith("{")]
        asked = {line["request_id"]: line for line in found if line["event"] == "request"}
        return asked if {"request-1", "request-2", "request-4"} <= asked.keys() else None

    asked = await eventually(lines, PATIENT)
    submitted = asked["request-1"]
    assert submitted["job_id"] == made["jobId"]
    assert (submitted["method"], submitted["path"], submitted["status"]) == ("POST", "/jobs", 202)
    assert (submitted["tenant_id"], submitted["subject"], submitted["correlation_id"]) == (
        "acme",
        "ada",
        "order-7",
    )
    assert (asked["request-2"]["job_id"], asked["request-2"].get("correlation_id")) == (made["jobId"], None)
    assert asked["request-4"]["status"] == 401
    assert "request-3" not in asked
    assert "a private text" not in api.log
    assert authorization.removeprefix("Bearer ") not in api.log
