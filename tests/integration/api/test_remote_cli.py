"""The command through an API: the same commands, the same output, the same exit codes as beside the database."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from durable_jobs.cli.running import user
from durable_jobs.cli.where import THROUGH_THE_API
from durable_jobs.embedded.ports import free_port
from tests.integration.api.conftest import WORK
from tests.support.api_server import ApiServer, token
from tests.support.cluster import Urls
from tests.support.command import Command, Result
from tests.support.history import DAY, add_chain, add_job, add_jobs, job_ids
from tests.support.probes import PgProbe

NOTE = '{"text": "hi"}'
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}[.\d]*Z?")
Run = Callable[..., Result]


@pytest.fixture
def here(
    api: ApiServer,
    worker_urls: Urls,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Command:
    """The command beside the database of the API."""
    monkeypatch.chdir(tmp_path)
    variables = {
        "DURABLE_JOBS_DATABASE_URL": worker_urls.application,
        "DURABLE_JOBS_MODULES": WORK,
        "DURABLE_JOBS_TOKEN": token(tenant="default", subject=user()),
    }
    return Command(monkeypatch, capsys, variables)


@pytest.fixture
def there(here: Command, api: ApiServer) -> Run:
    """The same command through the API."""
    return lambda *arguments, **more: here("--api-url", api.url, *arguments, **more)


def alike(result: Result) -> Result:
    """Return what is to be the same of two calls that made jobs of their own."""
    out, err = (_TIME.sub("TIME", _UUID.sub("ID", text)) for text in (result.out, result.err))
    return Result(result.code, out, err)


def failed_job(owner: psycopg.Connection, **columns: object) -> UUID:
    given = {"job_type": "ECHO", "queue": "wide", "state": "FAILED", "tenant_id": "default"} | columns
    return add_job(owner, timedelta(minutes=5), **given)


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as JSON"])
def test_what_is_read_is_the_same(
    here: Command, there: Run, owner_connection: psycopg.Connection, as_json: bool
) -> None:
    first, *_ = add_chain(owner_connection, [DAY, timedelta(hours=1)], tenant="default", last="FAILED")
    waiting = here("submit", "ECHO", NOTE, "--correlation-id", "order-1").out.strip()
    add_jobs(owner_connection, 5, 40 * DAY, tenant="default", job_type="ECHO")
    asked = (
        ["get", waiting], ["get", str(first)], ["get", str(first), "--chain"], ["list"], ["workers"],
        ["list", "--state", "FAILED", "--type", "WORK", "--queue", "work", "--since", "41d"], ["purgeable"],
        ["purgeable", "--older-than", "50d"],
    )  # fmt: skip
    for arguments in asked:
        wanted = [*arguments, "--json"] if as_json else arguments
        beside, through = here(*wanted), there(*wanted)
        if arguments[0] == "purgeable":
            # What is due moves with the clock.
            beside, through = alike(beside), alike(through)
        assert through == beside, wanted
        assert through.code == 0


def test_pages_go_on_where_they_ended(
    here: Command, there: Run, owner_connection: psycopg.Connection
) -> None:
    add_jobs(owner_connection, 7, timedelta(0), tenant="default", job_type="ECHO")
    page = there("list", "--limit", "4", "--json").json
    rest = there("list", "--limit", "4", "--json", "--cursor", page["nextCursor"]).json
    everything = here("list", "--json").json["jobs"]
    assert page["jobs"] + rest["jobs"] == everything
    assert there("list", "--cursor", "made up").code == here("list", "--cursor", "made up").code == 2


def test_the_configuration_is_the_apis(here: Command, there: Run) -> None:
    beside, through = here("config", "--json").json, there("config", "--json").json
    for part in ("queues", "jobTypes", "policies"):
        assert through[part] == beside[part]
    assert through["settings"]["jwtSecret"] == "***"
    shown = there("config").out
    assert "DURABLE_JOBS_JWT_SECRET" in shown
    assert "ECHO" in shown


def test_what_is_done_is_told_alike(here: Command, there: Run, owner_connection: psycopg.Connection) -> None:
    for arguments in (["cancel"], ["cancel", "--json"], ["retry"], ["retry", "--json"], ["resubmit"]):
        command, *options = arguments
        results = [alike(run(command, str(failed_job(owner_connection)), *options)) for run in (here, there)]
        assert results[0] == results[1]
        assert results[0].code == 0
    submitted = [alike(run("submit", "ECHO", NOTE, "--priority", "3", "--json")) for run in (here, there)]
    assert submitted[0].code == submitted[1].code == 0
    assert submitted[0].json | {"idempotencyKey": None} == submitted[1].json | {"idempotencyKey": None}
    for kind, name in (("queue", "wide"), ("type", "ECHO")):
        for command in ("pause", "resume"):
            for options in ([], ["--json"]):
                if command == "resume" and options:
                    here("pause", name)
                done = [alike(here(command, name, *options))]
                if command == "resume":
                    here("pause", name)
                done.append(alike(there(command, name, *options)))
                assert done[0] == done[1], (kind, command, options)


def test_what_is_refused_is_told_alike(
    here: Command, there: Run, owner_connection: psycopg.Connection
) -> None:
    at_limit = [failed_job(owner_connection, retry_count=1, max_retries=1) for _ in range(2)]
    limits = [alike(run("retry", str(job_id))) for run, job_id in zip((here, there), at_limit, strict=True)]
    assert limits[0] == limits[1]
    assert "ABANDONED" in limits[0].err
    ended = str(add_job(owner_connection, DAY, tenant_id="default", job_type="ECHO", queue="wide"))
    here("submit", "ECHO", NOTE, "--idempotency-key", "known")
    for arguments in (
        ["get", str(uuid4())],
        ["get", "no id"],
        ["cancel", ended],
        ["resubmit", ended],
        ["submit", "NEVER_SEEN", "{}"],
        ["submit", "ECHO", '{"text": 7}'],
        ["submit", "ECHO", "no json"],
        ["submit", "ECHO", '{"text": "other"}', "--idempotency-key", "known"],
        ["submit", "ECHO", NOTE, "--priority", "1000"],
        ["resume", "wide"],
        ["pause", "never-seen"],
    ):
        beside, through = here(*arguments), there(*arguments)
        assert (through.code, through.out) == (beside.code, beside.out), arguments
        assert through.code in (1, 2)
        assert through.err.startswith("error: ")
        if arguments[0] in ("get", "cancel", "resubmit", "resume", "pause"):
            assert through.err == beside.err


def test_a_full_queue_is_exit_code_3_and_an_api_that_is_away_4(
    here: Command, there: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_TIMEOUT", "2")
    lines = "\n".join(["{}"] * 100)
    assert here("submit", "NARROW", "--file", "-", stdin=lines.encode()).code == 0
    assert there("submit", "NARROW").code == here("submit", "NARROW").code == 3
    away = here("--api-url", f"http://127.0.0.1:{free_port()}", "list")
    assert (away.code, away.out) == (4, "")
    assert "does not answer" in away.err
    monkeypatch.setenv("DURABLE_JOBS_TOKEN", "not a token")
    assert there("list").code == 2


def test_waiting_ends_as_the_job_does(here: Command, api: ApiServer, rows: PgProbe) -> None:
    for job_type, code in (("ECHO", 0), ("BREAK", 1)):
        with here.process("--api-url", api.url, "submit", job_type, NOTE, "--wait", "--json") as process:
            try:
                while not any(row["job_type"] == job_type for row in rows.jobs()):
                    assert process.poll() is None
                here.execute()
                out, err = process.communicate(timeout=100)
            finally:
                process.kill()
        assert process.returncode == code, err
        state = "SUCCEEDED" if code == 0 else "FAILED"
        assert Result(code, out, err).json["state"] == state
        assert ("the disk of hi is full" in err) == bool(code)


def test_a_purge_takes_what_is_over_its_time_of_the_tokens_tenant(
    here: Command, there: Run, owner_connection: psycopg.Connection
) -> None:
    add_jobs(owner_connection, 3, 40 * DAY, tenant="default")
    other = add_job(owner_connection, 40 * DAY, tenant_id="other")
    dry = there("purge", "--dry-run")
    assert dry == here("purge", "--tenant", "default", "--dry-run")
    assert dry.out.startswith("nothing went; a purge would take 3 jobs")
    names = set(here("purge", "--tenant", "default", "--dry-run", "--json").json)
    for option, value in (("--tenant", "other"), ("--redis-prefix", "x"), ("--time-budget", "1m")):
        refused = there("purge", option, value)
        assert (refused.code, f"{option} does not work through an API" in refused.err) == (2, True)
    assert there("purge", "--older-than", "0").code == 2
    assert there("purge", "--older-than", "50d", "--json").json["jobs"] == 0
    gone = there("purge", "--older-than", "35d", "--json").json
    assert (gone["jobs"], set(gone)) == (3, names)
    assert job_ids(owner_connection) == {other}


def test_the_redis_that_is_looked_at_is_the_apis(here: Command, there: Run) -> None:
    none = there("redis", "--json")
    assert (none.code, none.json) == (0, {"healthy": True, "targets": []})
    assert there("redis") == here("redis")
    assert there("redis", "--block", "mine").code == 2


def test_what_needs_the_database_says_so(there: Run, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("{}\n{}\n")
    for arguments in (
        ["check"],
        ["effects", "list"],
        ["submit", "NARROW", "--file", str(lines)],
        ["retry", "--type", "ECHO"],
        ["resubmit", "--since", "1d", "--dry-run"],
        ["demo"],
    ):
        result = there(*arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert "does not work through an API" in result.err
    assert there("list", "--tenant", "acme").code == 2


def test_the_database_wins_over_the_variable_and_the_option_over_both(
    here: Command, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = here("submit", "ECHO", NOTE).out.strip()
    nobody = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("DURABLE_JOBS_API_URL", nobody)
    assert here("get", job_id).code == 0
    assert here("--api-url", api.url, "get", job_id).code == 0
    monkeypatch.delenv("DURABLE_JOBS_DATABASE_URL")
    monkeypatch.setenv("DURABLE_JOBS_API_URL", api.url)
    assert here("get", job_id, "--json").json["jobId"] == job_id
    assert here(f"--api-url={api.url}", "get", job_id).code == 0
    refused = here("retry", "--type", "ECHO")
    assert (refused.code, "does not work through an API" in refused.err) == (2, True)


def test_every_command_is_said_to_work_through_an_api_or_not(here: Command) -> None:
    assert set(here("--help").out.split()) >= THROUGH_THE_API
