"""`submit`: one job, however its request is given; and what is refused, with its exit code."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.integration.cli.conftest import WORK
from tests.support.command import Command

NOTE = '{"text": "hello"}'


def submitted(command: Command, *arguments: str) -> str:
    result = command("submit", *arguments)
    assert result.code == 0, result.err
    return result.out.strip()


def test_t1_t7_submission_needs_no_worker_and_leaves_a_job_that_can_be_consulted(command: Command) -> None:
    result = command.alone("submit", "ECHO", NOTE)
    assert (result.code, result.err) == (0, "")
    [job_id] = result.lines
    UUID(job_id)

    shown = command("get", job_id, "--json").json
    assert (shown["jobId"], shown["state"], shown["queue"]) == (job_id, "PENDING", "both")
    assert shown["payload"] == {"text": "hello", "times": 1}
    assert shown["startedAt"] is None


def test_t3_t4_a_failed_job_stays_failed_and_says_why(command: Command) -> None:
    job_id = submitted(command, "BREAK", NOTE)
    command.execute()
    command.execute()

    shown = command("get", job_id, "--json").json
    assert shown["state"] == "FAILED"
    assert shown["failedReason"] == "ValueError: the disk of hello is full"
    assert (shown["claimCount"], shown["retryCount"], shown["retryChildId"]) == (1, 0, None)
    assert len(command("list", "--json").json["jobs"]) == 1


def test_a_request_comes_from_an_argument_a_file_or_stdin(command: Command, tmp_path: Path) -> None:
    pretty = b'\xef\xbb\xbf{\n  "text": "a\xc3\xa9",\r\n  "times": 2\n}\n'
    (tmp_path / "note.json").write_bytes(pretty)
    for result in (
        command("submit", "ECHO", '{"text": "a\u00e9", "times": 2}'),
        command("submit", "ECHO", "--file", "note.json"),
        command("submit", "ECHO", "-", stdin=pretty),
        command("submit", "ECHO", "--file", "-", stdin=pretty),
    ):
        assert result.code == 0, result.err
        payload = command("get", result.out.strip(), "--json").json["payload"]
        assert payload == {"text": "a\u00e9", "times": 2}


def test_a_request_without_fields_need_not_be_written(command: Command) -> None:
    assert submitted(command, "NARROW")


def test_every_option_reaches_the_job(command: Command) -> None:
    options = ["--tenant", "acme", "--idempotency-key", "k", "--correlation-id", "trace", "--priority", "-5"]
    result = command("submit", "ECHO", NOTE, *options, "--run-at", "2100-01-31T08:00:00+01:00", "--json")
    job = result.json
    assert (job["tenantId"], job["idempotencyKey"], job["correlationId"]) == ("acme", "k", "trace")
    assert (job["priority"], job["runAt"]) == (-5, "2100-01-31T07:00:00Z")
    assert job["submittedBy"]
    assert command("get", job["jobId"]).code == 1
    assert command("get", job["jobId"], "--tenant", "acme").code == 0


def test_the_same_key_is_the_same_job_and_other_data_is_refused(command: Command) -> None:
    first = submitted(command, "ECHO", NOTE, "--idempotency-key", "once")
    assert submitted(command, "ECHO", NOTE, "--idempotency-key", "once") == first
    other = command("submit", "ECHO", '{"text": "other"}', "--idempotency-key", "once")
    assert (other.code, other.out) == (2, "")
    assert "'once'" in other.err
    assert "use a new key" in other.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ECHOO", NOTE], "did you mean ECHO?"),
        (["ECHO", '{"text": 1}'], "text: Input should be a valid string"),
        (["ECHO", '{"text": '], "Invalid JSON"),
        (["ECHO", ""], "the request is empty"),
        (["ECHO", NOTE, "--priority", "101"], "priority 101"),
        (["ECHO", NOTE, "--run-at", "2100-01-31T08:00:00"], "has no time zone"),
        (["ECHO", NOTE, "--run-at", "tomorrow"], "--run-at 'tomorrow' is not a time"),
        (["ECHO", NOTE, "--tenant", ""], "tenant ''"),
        (["ECHO", NOTE, "--file", "note.json"], "there are two requests"),
        (["ECHO", "--file", "missing.json"], "--file missing.json cannot be read: No such file or directory"),
        (["ECHO", "--file", "."], "--file . cannot be read: Is a directory"),
        (["ECHO", NOTE, "--chain"], "--chain says how to wait: add --wait"),
        (["ECHO", NOTE, "--wait", "--wait-timeout", "soon"], "--wait-timeout 'soon' is not a duration"),
        (["ECHO", NOTE, "--wait-timeout", "5s"], "--wait-timeout says how to wait: add --wait"),
        ([], "Missing argument"),
        (["ECHO", NOTE, "--nonsense"], "No such option"),
    ],
)
def test_bad_input_is_told_with_code_2_and_registers_nothing(
    command: Command, arguments: list[str], said: str
) -> None:
    result = command("submit", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert command("list", "--json").json["jobs"] == []


def test_stdin_that_is_no_text_is_bad_input(command: Command) -> None:
    result = command("submit", "ECHO", "-", stdin=b'{"text": "\xff"}')
    assert result.code == 2
    assert "line 1: it is not UTF-8 (byte 11 is 0xff)" in result.err


def test_a_full_queue_refuses_with_code_3(command: Command) -> None:
    for _ in range(2):
        submitted(command, "NARROW")
    full = command("submit", "NARROW")
    assert (full.code, full.out) == (3, "")
    assert "queue 'narrow' is full: it may hold 2 waiting jobs" in full.err


def test_a_module_that_does_not_load_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("import no_such_thing\n")
    monkeypatch.setenv("DURABLE_JOBS_MODULES", "mine.py")
    result = command("submit", "ECHO", NOTE)
    assert result.code == 2
    assert "module 'mine.py' of DURABLE_JOBS_MODULES cannot be loaded" in result.err
    assert "No module named 'no_such_thing'" in result.err


def test_what_a_module_prints_is_no_answer(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "loud.py").write_text(WORK.read_text() + "\nprint('hello')\n")
    monkeypatch.setenv("DURABLE_JOBS_MODULES", str(tmp_path / "loud.py"))
    result = command("submit", "ECHO", NOTE)
    assert len(result.lines) == 1
    assert result.err == "hello\n"


def test_text_that_is_no_text_is_bad_input(command: Command) -> None:
    result = command("submit", "ECHO", NOTE, "--correlation-id", "\udcff")
    assert (result.code, result.out) == (2, "")
    assert "argument 5 is not UTF-8: '\\udcff'" in result.err


def test_a_role_without_rights_is_told_what_to_use(
    command: Command, admin_url: str, owner_connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner_connection.execute("DROP ROLE IF EXISTS nobody_here")
    owner_connection.execute("CREATE ROLE nobody_here LOGIN PASSWORD 'invented'")
    url = make_url(admin_url).set(username="nobody_here", password="invented")
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", url.render_as_string(hide_password=False))
    result = command("submit", "ECHO", NOTE)
    owner_connection.execute("DROP ROLE nobody_here")
    assert (result.code, result.out) == (2, "")
    assert "permission denied for table durable_jobs_version" in result.err
    assert "durable_jobs_app_<database>" in result.err


def test_without_a_database_setting_the_way_out_is_told(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DURABLE_JOBS_DATABASE_URL")
    result = command("submit", "ECHO", NOTE)
    assert result.code == 2
    assert "DURABLE_JOBS_DATABASE_URL is not set" in result.err


def test_a_role_that_sees_every_tenant_is_refused_outside_development(
    command: Command, admin_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", admin_url)
    lenient = command("submit", "ECHO", NOTE)
    assert lenient.code == 0
    assert len(lenient.lines) == 1  # the warning is not on stdout
    assert "unsafe database role" in lenient.err
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", "production")
    strict = command("submit", "ECHO", NOTE)
    assert (strict.code, strict.out) == (2, "")
    assert "superuser" in strict.err
