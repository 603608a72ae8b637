"""POST /jobs and GET /jobs/{jobId}: what is accepted is stored, what cannot be right is told where."""

from __future__ import annotations

from uuid import UUID, uuid4

import httpx

from tests.support.api_server import ApiServer
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
