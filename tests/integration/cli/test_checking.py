"""`check`: each fault is found and comes with a way out; a fault never hides the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import httpx
import psycopg
import pytest

from durable_jobs.cli.checks.prefect_api import expected_deployments
from durable_jobs.deployments.manifest import read_manifest
from tests.support.cluster import Urls
from tests.support.command import Command

HEALTHY = {
    "retention", "events",
    "settings", "job modules", "database", "database version", "schema", "database role",
    "row-level security", "paused", "oldest waiting job",
}  # fmt: skip


def checked(command: Command) -> tuple[int, dict[str, dict[str, Any]]]:
    result = command("check", "--json")
    return result.code, {finding["name"]: finding for finding in result.json["checks"]}


def enter_executor(connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO job_executors (executor_id, host, pid) VALUES (gen_random_uuid(), 'a', 1)"
    )


def test_a_healthy_database_is_ok_and_what_cannot_be_told_is_unknown(command: Command) -> None:
    code, found = checked(command)
    assert code == 0
    assert {name for name, finding in found.items() if finding["status"] == "ok"} == HEALTHY | {"clocks"}
    assert found["shift on duty"]["status"] == "warning"
    assert found["Prefect API"]["status"] == "unknown"
    assert "PREFECT_API_URL" in found["Prefect API"]["wayOut"]
    text = command("check")
    assert text.code == 0
    assert "-> start the stack with `durable-jobs up`" in text.out


def test_events_that_do_not_reach_prefect_are_seen(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    insert = (
        "INSERT INTO job_events (event, severity, occurred_at) VALUES ('x', 'INFO', now() - interval '{}')"
    )
    owner_connection.execute(insert.format("1 minute"))
    assert checked(command)[1]["events"]["status"] == "ok"
    owner_connection.execute(insert.format("1 hour"))
    code, found = checked(command)
    assert (code, found["events"]["status"]) == (0, "warning")
    assert "2 wait for Prefect, the oldest for 1:00:0" in found["events"]["message"]


def test_jobs_that_are_due_and_nobody_to_execute_them_is_a_failure(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    command("submit", "ECHO", '{"text": "a"}')
    code, found = checked(command)
    assert (code, found["shift on duty"]["status"]) == (1, "failed")
    enter_executor(owner_connection)
    assert checked(command)[0] == 0
    owner_connection.execute("UPDATE job_history SET run_at = now() - interval '1 hour'")
    owner_connection.execute("INSERT INTO paused (kind, name) VALUES ('queue', 'both')")
    code, found = checked(command)
    assert code == 0
    assert found["oldest waiting job"]["status"] == "warning"
    assert "due for 1:00:0" in found["oldest waiting job"]["message"]
    assert found["paused"]["wayOut"] == "durable-jobs resume both"


def test_a_database_that_is_away_does_not_hide_the_rest(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", "postgresql://boss:topsecret@127.0.0.1:1/shop")
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_TIMEOUT", "1")
    monkeypatch.setenv("PREFECT_API_URL", "http://boss:topsecret@127.0.0.1:1/api")
    result = command("check", "--json")
    found = {finding["name"]: finding for finding in result.json["checks"]}
    assert result.code == 1
    assert "Connection refused" in found["database"]["message"]
    assert found["schema"]["status"] == "unknown"
    assert found["Prefect API"]["status"] == "failed"
    assert "http://127.0.0.1:1/api" in found["Prefect API"]["message"]
    assert "topsecret" not in result.out + result.err


@pytest.mark.parametrize(
    ("name", "value", "failing"),
    [
        ("DURABLE_JOBS_CREW", "many", "settings"),
        ("DURABLE_JOBS_MODULES", "no_such_module", "job modules"),
        ("DURABLE_JOBS_DATABASE_URL", "mysql://a@b/c", "database"),
        ("PREFECT_API_URL", "not a url", "Prefect API"),
    ],
)
def test_what_is_set_wrong_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, name: str, value: str, failing: str
) -> None:
    monkeypatch.setenv(name, value)
    code, found = checked(command)
    assert (code, found[failing]["status"]) == (1, "failed")


def test_faults_of_a_database_are_found(
    broken_command: tuple[Command, Urls], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, urls = broken_command
    with psycopg.connect(urls.admin, autocommit=True) as owner:
        owner.execute("ALTER TABLE job_effects NO FORCE ROW LEVEL SECURITY")
        owner.execute("COMMENT ON TABLE durable_jobs_version IS 'another'")
    code, found = checked(command)
    assert code == 1
    assert found["row-level security"]["message"] == "not forced on job_effects"
    assert "ALTER TABLE job_effects" in found["row-level security"]["wayOut"]
    assert found["schema"]["status"] == "failed"

    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", urls.admin)
    assert checked(command)[1]["database role"]["status"] == "warning"
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", "staging")
    assert checked(command)[1]["database role"]["status"] == "failed"

    with psycopg.connect(urls.admin, autocommit=True) as owner:
        owner.execute("DROP TABLE durable_jobs_version, job_history CASCADE")
    found = checked(command)[1]
    assert found["schema"]["message"] == "the database has no tables of durable-jobs"
    assert "durable-jobs deploy" in found["schema"]["wayOut"]


def test_every_flow_has_the_name_that_its_function_tells() -> None:
    for entry, expected in zip(read_manifest(), expected_deployments(), strict=True):
        module, _, function = entry["entrypoint"].rpartition(".")
        assert getattr(import_module(module), function).name == expected.flow


@pytest.fixture
def prefect(prefect_harness: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Post to a Prefect server, which the environment names."""
    from prefect.settings import get_current_settings

    url = str(get_current_settings().api.url)
    monkeypatch.setenv("PREFECT_API_URL", url)
    with httpx.Client(base_url=url, timeout=30) as client:

        def post(method: str, path: str, **document: Any) -> Any:
            answer = client.request(method, path, json=document)
            give_up = time.monotonic() + 60
            # Prefect's server on SQLite says so when it finds its database locked.
            while answer.status_code == 503 and time.monotonic() < give_up:
                answer = client.request(method, path, json=document)
            answer.raise_for_status()
            return answer.json() if answer.content else None

        yield post


def test_what_prefect_lacks_is_told(
    command: Command,
    prefect: Callable[..., Any],
    owner_connection: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enter_executor(owner_connection)
    code, found = checked(command)
    assert code == 1
    assert found["Prefect API"]["status"] == found["clocks"]["status"] == "ok"
    assert "the Prefect server" in found["clocks"]["message"]
    assert found["Prefect version"]["status"] == "ok"
    assert found["task run recorder"]["status"] == "ok"
    assert found["Prefect retention"]["status"] == "warning"
    assert "DB_VACUUM_ENABLED=events,flow_runs" in found["Prefect retention"]["wayOut"]
    assert "execute-jobs/shift" in found["deployments"]["message"]
    assert found["deployments"]["status"] == "failed"

    every_minute = {"schedule": {"cron": "* * * * *"}, "active": True}
    made = {}
    for one in expected_deployments():
        flow = prefect("POST", "/flows/", name=one.flow)["id"]
        made[str(one)] = prefect(
            "POST",
            "/deployments/",
            name=one.name,
            flow_id=flow,
            schedules=[every_minute] if one.scheduled else [],
        )["id"]
    code, found = checked(command)
    assert (code, found["deployments"]["status"]) == (0, "warning")
    assert "nobody polls for" in found["deployments"]["message"]

    prefect("POST", f"/deployments/{made['execute-jobs/shift']}/pause_deployment")
    code, found = checked(command)
    assert (code, found["deployments"]["status"]) == (1, "failed")
    assert found["deployments"]["message"] == "paused: execute-jobs/shift"

    monkeypatch.setenv("DURABLE_JOBS_VISIBLE_TASK_RUNS_PER_SECOND", "100")
    recorder = checked(command)[1]["task run recorder"]
    assert recorder["status"] == "warning"
    assert "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE=200" in recorder["wayOut"]

    assert "no job was shown" in checked(command)[1]["task run lag"]["message"]
    job_id = command("submit", "ECHO", '{"text": "a"}').out.strip()
    run = prefect("POST", "/task_runs/", name="a", task_key="a", dynamic_key="a", state={"type": "RUNNING"})
    owner_connection.execute(
        "UPDATE job_history SET state = 'SUCCEEDED', pending_shard = NULL, task_run_id = %s,"
        " completed_at = now() - interval '20 s'",
        [run["id"]],
    )
    lag = checked(command)[1]["task run lag"]
    assert lag["status"] == "warning"
    assert f"job {job_id} ended 2" in lag["message"]
    prefect("POST", f"/task_runs/{run['id']}/set_state", state={"type": "COMPLETED"}, force=True)
    assert checked(command)[1]["task run lag"]["status"] == "ok"
