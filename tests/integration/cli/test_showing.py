"""`get` and `list`: filters, stable pages, tenants, and output that a pipe may cut."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, tzinfo
from uuid import uuid4

import psycopg
import pytest

from durable_jobs import written_times
from durable_jobs.jobs import Job
from tests.support.command import Command


def submit(command: Command, *arguments: str) -> str:
    result = command("submit", *arguments)
    assert result.code == 0, result.err
    return result.out.strip()


def listed(command: Command, *arguments: str) -> list[str]:
    return [job["jobId"] for job in command("list", "--json", *arguments).json["jobs"]]


def test_get_shows_every_column_in_camel_case(command: Command) -> None:
    job_id = submit(command, "ECHO", '{"text": "a"}')
    document = command("get", job_id, "--json").json
    assert set(document) == {field.alias for field in Job.model_fields.values()}
    assert {"jobId", "failedReason", "retryCount", "retryChildId", "rootJobId"} <= set(document)
    assert not {"claimToken", "pendingShard", "payloadHash"} & set(document)


def test_get_for_people_is_safe_for_their_terminal(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    job_id = submit(command, "ECHO", '{"text": "\\u001b[2J"}', "--correlation-id", "trace")
    owner_connection.execute(
        "UPDATE job_history SET state = 'FAILED', completed_at = now(), failed_reason = E'a\\nb\\u001b[2J'"
    )
    for result in (command("get", job_id), command("list")):
        assert result.code == 0
        assert "\x1b" not in result.out
    shown = dict(line.split(None, 1) for line in command("get", job_id).lines)
    assert shown["correlationId"] == "trace"
    assert shown["failedReason"].startswith("a b")


def test_an_unknown_id_and_another_tenants_are_no_with_code_1(command: Command) -> None:
    job_id = submit(command, "ECHO", '{"text": "a"}', "--tenant", "acme")
    for unknown in (str(uuid4()), job_id):
        result = command("get", unknown, "--json")
        assert (result.code, result.out) == (1, "")
        assert f"no job {unknown} in tenant 'default'" in result.err


class WrongClock(datetime):
    """Three hours ahead of the database."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(hours=3)


def test_since_is_by_the_databases_clock(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = submit(command, "ECHO", '{"text": "a"}')
    monkeypatch.setattr(written_times, "datetime", WrongClock)
    assert listed(command, "--since", "2h") == [waiting]
    failed = submit(command, "BREAK", '{"text": "a"}')
    command.execute()
    assert failed in command("retry", "--since", "2h", "--dry-run").out


def test_an_id_that_is_none_is_bad_input(command: Command) -> None:
    result = command("get", "42")
    assert (result.code, result.out) == (2, "")
    assert "job id '42' is not a UUID" in result.err


def test_times_are_in_utc_whatever_the_time_zone_of_the_session(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit(command, "BREAK", '{"text": "a"}')
    command.execute()
    shown = ["get", job_id, "--chain"], ["list"], ["pause", "default"]
    programs = ["get", job_id], ["get", job_id, "--chain"], ["list"], ["submit", "ECHO", '{"text": "a"}']
    asked = [*shown, *([*arguments, "--json"] for arguments in (*programs, ["pause", "default"]))]
    as_utc = [times_in(command(*arguments).out) for arguments in asked]
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    in_india = [times_in(command(*arguments).out) for arguments in asked]
    assert all(as_utc)
    assert all(time.endswith("Z") for times in in_india for time in times)
    # What is not made anew has not moved.
    assert in_india[0] == as_utc[0]
    assert in_india[3:5] == as_utc[3:5]


def times_in(text: str) -> list[str]:
    return re.findall(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^\s\",]*", text)


def test_list_filters(command: Command) -> None:
    failed = submit(command, "BREAK", '{"text": "a"}')
    command.execute()
    waiting = submit(command, "ECHO", '{"text": "a"}')
    elsewhere = submit(command, "ECHO", '{"text": "a"}', "--tenant", "acme")

    assert listed(command) == [waiting, failed]
    assert listed(command, "--state", "failed") == [failed]
    assert listed(command, "--state", "FAILED", "--state", "PENDING") == [waiting, failed]
    assert listed(command, "--type", "ECHO") == [waiting]
    assert listed(command, "--queue", "default") == [failed]
    assert listed(command, "--tenant", "acme") == [elsewhere]
    assert listed(command, "--since", "2h") == listed(command, "--since", "PT2H") == [waiting, failed]
    assert listed(command, "--since", "2100-01-01T00:00:00Z") == []
    [job, _] = command("list", "--json").json["jobs"]
    assert not {"payload", "result"} & set(job)
    table = command("list").lines
    assert table[0].split() == ["JOB", "ID", "TYPE", "QUEUE", "STATE", "CREATED", "RETRY", "REASON"]
    assert "ValueError: the disk of a is full" in table[2]


def test_pages_are_stable_while_jobs_come(command: Command) -> None:
    for n in range(5):
        submit(command, "ECHO", json.dumps({"text": str(n)}))
    everything = listed(command)
    found: list[str] = []
    cursor: list[str] = []
    while True:
        page = command("list", "--json", "--limit", "2", *cursor).json
        found += [job["jobId"] for job in page["jobs"]]
        submit(command, "ECHO", '{"text": "new"}')
        if page["nextCursor"] is None:
            break
        cursor = ["--cursor", page["nextCursor"]]
    assert found == everything
    assert f"There are more: --cursor {cursor[1]}"[:20] in command("list", "--limit", "2").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--state", "DONE"], "--state 'DONE' is no state of a job; states are PENDING, RUNNING"),
        (["--since", "yesterday"], "--since 'yesterday' is neither a duration"),
        (["--since", "2030-01-31"], "--since '2030-01-31' has no time zone"),
        (["--since", "999999999d"], "--since '999999999d' is neither"),
        (["--cursor", "x"], "--cursor 'x' is not the nextCursor"),
        (["--cursor", "bnVsbA"], "--cursor 'bnVsbA' is not the nextCursor"),
        (["--limit", "0"], "--limit"),
        (["--limit", "1001"], "--limit"),
    ],
)
def test_bad_filters_are_bad_input(command: Command, arguments: list[str], said: str) -> None:
    result = command("list", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_a_reader_that_has_seen_enough_is_no_error(command: Command) -> None:
    submit(command, "ECHO", '{"text": "a"}\n' * 500)
    with command.process("list", "--limit", "500", "--json") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "{\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 0
