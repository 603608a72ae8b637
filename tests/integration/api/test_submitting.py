"""POST /jobs and GET /jobs/{jobId}: what is accepted is stored, what cannot be right is told where."""

from __future__ import annotations

import asyncio
import contextlib
import json
from uuid import UUID, uuid4

import httpx

from tests.support.api_server import PATIENT, ApiServer, bearer, served
from tests.support.cluster import Urls
from tests.support.command import Command
from tests.support.probes import PgProbe

PROBLEM = "application/problem+json"


def test_a_job_is_accepted_without_any_worker_and_can_be_read(client: httpx.Client, rows: PgProbe) -> None:
    """T-1, T-7: the answer waits for nobody, and the job is there, PENDING."""
    answer = client.post("/jobs", json={"type": "ECHO", "data": {"text": "hello"}, "correlationId": "c-1"})
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/jobs/{answer.json()['jobId']}"
    assert answer.json()["status"] == "PENDING"
    found = client.get(answer.headers["Location"])
    assert found.status_code == 200
    job = found.json()
    assert (job["jobId"], job["state"], job["payload"]) == (
        answer.json()["jobId"],
        "PENDING",
        {"text": "hello", "times": 1},
    )
    assert (job["tenantId"], job["submittedBy"], job["correlationId"]) == ("acme", "ada", "c-1")
    [row] = rows.jobs()
    assert row["job_id"] == UUID(job["jobId"])


def test_an_unknown_id_is_not_found(client: httpx.Client) -> None:
    """ERR-4, also for what is no id at all."""
    for name in (str(uuid4()), "never-seen", "%00"):
        answer = client.get(f"/jobs/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
        assert answer.json()["type"] == "urn:durable-jobs:problem:job-not-found"


def test_another_tenants_job_is_not_found(api: ApiServer, client: httpx.Client) -> None:
    job_id = client.post("/jobs", json={"type": "ECHO", "data": {"text": "mine"}}).json()["jobId"]
    with api.client(tenant="other") as stranger:
        mine, nobodys = stranger.get(f"/jobs/{job_id}"), stranger.get(f"/jobs/{uuid4()}")
    assert mine.status_code == nobodys.status_code == 404
    assert mine.json()["type"] == nobodys.json()["type"]


def test_a_failure_is_readable_and_is_not_retried_by_itself(client: httpx.Client, command: Command) -> None:
    """CE-1, T-3, T-4: over HTTP, from the submission to the reason."""
    job_id = client.post("/jobs", json={"type": "BREAK", "data": {"text": "archive"}}).json()["jobId"]
    command.execute()
    job = client.get(f"/jobs/{job_id}").json()
    assert (job["state"], job["failedReason"]) == ("FAILED", "ValueError: the disk of archive is full")
    status = client.get(f"/jobs/{job_id}/status").json()
    assert (status["terminal"], status["attemptsLeft"]) == (False, 1)
    assert [event["event"] for event in status["history"]] == ["jobs.job.failed"]
    command.execute()
    assert client.get(f"/jobs/{job_id}").json()["state"] == "FAILED"
    assert client.get("/jobs/failed", params={"retryable": True}).json()["jobs"][0]["jobId"] == job_id


def test_a_result_is_readable(client: httpx.Client, command: Command) -> None:
    body = {
        "type": "ECHO",
        "data": {"text": "ab", "times": 2},
        "priority": 5,
        "runAt": "2020-01-01T01:00:00+01:00",
    }
    job_id = client.post("/jobs", json=body).json()["jobId"]
    command.execute()
    job = client.get(f"/jobs/{job_id}").json()
    assert (job["state"], job["result"]) == ("SUCCEEDED", {"status": "OK", "value": "abab"})
    assert (job["priority"], job["runAt"]) == (5, "2020-01-01T00:00:00Z")
    assert json.loads(command("get", job_id, "--tenant", "acme", "--json").out) == job


async def test_two_connections_for_three_tenants_mix_up_nothing(worker_urls: Urls, api: ApiServer) -> None:
    """200 requests by turns, some of them refused, over a pool of two: each sees its own tenant's only."""
    tenants = ("acme", "globex", "initech")
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(
            served(worker_urls.application, modules=api.modules, DURABLE_JOBS_POOL_SIZE="2", **PATIENT)
        )
        callers = {
            tenant: await stack.enter_async_context(
                httpx.AsyncClient(base_url=server.url, headers=bearer(tenant=tenant), timeout=120)
            )
            for tenant in tenants
        }

        async def submit(n: int) -> tuple[str, str | None]:
            tenant = tenants[n % 3]
            data = {"text": tenant} if n % 7 else {"text": [tenant]}
            answer = await callers[tenant].post("/jobs", json={"type": "ECHO", "data": data})
            assert answer.status_code == (202 if n % 7 else 400)
            return tenant, answer.json().get("jobId")

        made = await asyncio.gather(*(submit(n) for n in range(200)))
        mine = {tenant: {job for of, job in made if of == tenant and job} for tenant in tenants}

        async def look(tenant: str, job_id: str) -> None:
            answer = await callers[tenant].get(f"/jobs/{job_id}")
            assert answer.status_code == (200 if job_id in mine[tenant] else 404)
            if answer.is_success:
                assert (answer.json()["tenantId"], answer.json()["payload"]["text"]) == (tenant, tenant)

        every = sorted(job for jobs in mine.values() for job in jobs)
        await asyncio.gather(*(look(tenants[n % 3], job) for n, job in enumerate(every)))
        for tenant in tenants:
            listed = (await callers[tenant].get("/jobs", params={"limit": 1000})).json()["jobs"]
            assert {job["jobId"] for job in listed} == mine[tenant]
