"""What people on duty do over HTTP: retry, cancel, resubmit, pause, purge; and the figures they look at."""

from __future__ import annotations

from datetime import timedelta

import httpx
import psycopg
import pytest

from tests.support.api_server import ApiServer
from tests.support.history import DAY, add_job, add_jobs
from tests.support.probes import PgProbe


def failed(owner: psycopg.Connection, **columns: object) -> str:
    """Add a job that has failed."""
    columns = {
        "job_type": "ECHO",
        "queue": "wide",
        "state": "FAILED",
        "failed_reason": "ValueError: no",
    } | columns
    return str(add_job(owner, timedelta(minutes=5), **columns))


def kind(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).removeprefix("urn:durable-jobs:problem:")


def test_a_failed_job_that_can_be_retried_is_listed_and_its_retry_is_a_new_job(
    client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    """T-8, T-9, T-10."""
    job_id = failed(owner_connection)
    [letter] = client.get("/jobs/failed", params={"retryable": True}).json()["jobs"]
    assert (letter["jobId"], letter["failedReason"]) == (job_id, "ValueError: no")
    answer = client.post(f"/jobs/{job_id}/retry")
    assert answer.status_code == 201
    child = answer.json()
    assert (child["parentJobId"], child["retryCount"], child["state"]) == (job_id, 1, "PENDING")
    assert answer.headers["Location"] == f"/jobs/{child['jobId']}"
    parent = client.get(f"/jobs/{job_id}").json()
    assert (parent["state"], parent["retryChildId"]) == ("RETRIED", child["jobId"])
    again = client.post(f"/jobs/{job_id}/retry")
    assert (again.status_code, again.json()["jobId"]) == (201, child["jobId"])
    status = client.get(f"/jobs/{job_id}/status").json()
    assert status["lineage"]["currentJobId"] == child["jobId"]
    assert [event["event"] for event in status["history"]] == ["jobs.job.retried"]
    assert status["history"][0]["by"] == "ada"
    assert [job["jobId"] for job in client.get(f"/jobs/{child['jobId']}/chain").json()["jobs"]] == [
        job_id,
        child["jobId"],
    ]


def test_what_is_not_retryable_is_not_listed_as_retryable(
    client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    """T-12."""
    job_id = failed(owner_connection, retryable=False)
    assert client.get("/jobs/failed", params={"retryable": True}).json()["jobs"] == []
    assert [job["jobId"] for job in client.get("/jobs/failed").json()["jobs"]] == [job_id]
    [listed] = client.get("/jobs/failed", params={"retryable": False, "job_type": "ECHO"}).json()["jobs"]
    assert listed["jobId"] == job_id
    answer = client.post(f"/jobs/{job_id}/retry")
    assert (answer.status_code, kind(answer)) == (400, "not-allowed")


def test_a_job_at_its_limit_is_given_up_and_can_be_resubmitted(
    client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    """T-11."""
    job_id = failed(owner_connection, max_retries=0)
    answer = client.post(f"/jobs/{job_id}/retry")
    assert (answer.status_code, kind(answer)) == (400, "not-allowed")
    assert "ABANDONED" in answer.json()["detail"]
    assert client.get(f"/jobs/{job_id}").json()["state"] == "ABANDONED"
    made = client.post(f"/jobs/{job_id}/resubmit")
    assert (made.status_code, made.json()["replayOf"], made.json()["submittedBy"]) == (201, job_id, "ada")


def test_cancelling_is_once_and_for_all(client: httpx.Client) -> None:
    job_id = client.post("/jobs", json={"type": "ECHO", "data": {"text": "x"}}).json()["jobId"]
    answer = client.post(f"/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "CANCELLED")
    again = client.post(f"/jobs/{job_id}/cancel")
    assert (again.status_code, kind(again)) == (400, "not-allowed")


@pytest.mark.parametrize(("where", "name"), [("queues", "wide"), ("types", "ECHO")])
def test_queues_and_types_are_paused_and_resumed(client: httpx.Client, where: str, name: str) -> None:
    paused = client.post(f"/{where}/{name}/pause").json()
    assert (paused["paused"], paused["by"]) == (True, "ada")
    assert [one["name"] for one in client.get("/jobs/stats").json()["paused"]] == [name]
    assert client.post(f"/{where}/{name}/resume").json()["paused"] is False
    assert client.post(f"/{where}/{name}/resume").status_code == 400
    assert client.post(f"/{where}/nothing/pause").status_code == 404


def test_a_purge_takes_what_is_purgeable_and_counts_it(
    api: ApiServer, client: httpx.Client, owner_connection: psycopg.Connection, rows: PgProbe
) -> None:
    """T-21: of the caller's tenant, terminal and over its time, and nothing else."""
    add_jobs(owner_connection, 12, 40 * DAY)
    add_jobs(owner_connection, 5, 10 * DAY)
    add_jobs(owner_connection, 3, 40 * DAY, tenant="other")
    listed = client.get("/jobs/purgeable", params={"olderThan": "30d"}).json()
    assert (listed["jobs"], {group["tenantId"] for group in listed["groups"]}) == (12, {"acme"})
    dry = client.delete("/jobs/purge", params={"target": "db", "dryRun": True}).json()
    assert (dry["jobs"], dry["dryRun"], len(rows.jobs())) == (12, True, 20)
    gone = client.delete("/jobs/purge", params={"target": "db", "olderThan": "30d"}).json()
    assert (gone["jobs"], gone["target"], len(rows.jobs())) == (12, "db", 8)
    refused = client.delete("/jobs/purge", params={"olderThan": "1m"})
    assert (refused.status_code, "DURABLE_JOBS_MIN_RETENTION" in refused.json()["detail"]) == (400, True)


def test_a_misspelt_dry_run_purges_nothing(
    client: httpx.Client, owner_connection: psycopg.Connection, rows: PgProbe
) -> None:
    add_jobs(owner_connection, 2, 40 * DAY)
    answer = client.delete("/jobs/purge", params={"dryrun": True})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "query.dryrun")
    assert len(rows.jobs()) == 2


def test_stats_are_those_of_the_callers_tenant(
    api: ApiServer, client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    client.post("/jobs", json={"type": "ECHO", "data": {"text": "x"}})
    failed(owner_connection)
    failed(owner_connection, tenant_id="other")
    stats = client.get("/jobs/stats").json()
    assert (stats["tenantId"], stats["pending"], stats["deadLetters"]) == ("acme", 1, 1)
    assert {(count["jobType"], count["state"], count["jobs"]) for count in stats["counts"]} == {
        ("ECHO", "PENDING", 1),
        ("ECHO", "FAILED", 1),
    }
    assert stats["lastHour"][0]["failed"] == 1
    with api.client(tenant="nobody") as stranger:
        nothing = stranger.get("/jobs/stats").json()
    assert (nothing["pending"], nothing["counts"], nothing["lastHour"]) == (0, [], [])


def test_the_configuration_has_no_secret(api: ApiServer, client: httpx.Client) -> None:
    answer = client.get("/jobs/config")
    document = answer.json()
    assert {"ECHO", "NARROW"} <= {one["name"] for one in document["jobTypes"]}
    assert document["settings"]["jwtSecret"] == "***"
    assert "a secret for tests" not in answer.text
    with api.client(scopes=["read"]) as reader:
        assert "settings" not in reader.get("/jobs/config").json()


def test_health_tells_four_things_apart(api: ApiServer, client: httpx.Client) -> None:
    with httpx.Client(base_url=api.url, timeout=60) as nobody:
        assert nobody.get("/health/live").json() == {"status": "live"}
        assert api.wait_until_ready() == {"status": "ready"}
        assert nobody.get("/health/workers").status_code == 401
    workers = client.get("/health/workers")
    assert (workers.status_code, workers.json()) == (503, {"healthy": False, "workers": []})
    redis = client.get("/health/redis")
    assert (redis.status_code, redis.json()) == (200, {"configured": False, "healthy": True, "targets": []})
