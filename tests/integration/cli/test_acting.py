"""`cancel`, `retry`, `resubmit`, `pause`, `resume`: what is done, what is refused, and the exit codes."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg

from tests.support.command import Command

NOTE = '{"text": "hello"}'


def submit(command: Command, *arguments: str) -> str:
    result = command("submit", *arguments)
    assert result.code == 0, result.err
    return result.out.strip()


def failed(command: Command, job_type: str = "BREAK") -> str:
    job_id = submit(command, job_type, NOTE)
    command.execute()
    return job_id


def state(command: Command, job_id: str) -> str:
    return str(command("get", job_id, "--json").json["state"])


def test_cancel_ends_what_waits_and_refuses_what_is_over(command: Command) -> None:
    job_id = submit(command, "ECHO", NOTE)
    done = command("cancel", job_id)
    assert (done.code, done.out) == (0, f"{job_id} CANCELLED\n")
    again = command("cancel", job_id)
    assert (again.code, again.out) == (1, "")
    assert f"job {job_id} is CANCELLED, which is final" in again.err


def test_cancelling_a_running_job_asks_it_and_returns(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    job_id = submit(command, "ECHO", NOTE)
    owner_connection.execute(
        "UPDATE job_history SET state = 'RUNNING', pending_shard = NULL, claim_token = gen_random_uuid(),"
        " executor_id = gen_random_uuid(), deadline_at = now() + interval '1 hour', started_at = now()"
    )
    result = command("cancel", job_id, "--json")
    assert (result.code, result.json["state"]) == (0, "RUNNING")
    assert result.json["cancelRequestedAt"] is not None
    assert command("cancel", job_id).out == f"{job_id} RUNNING (asked to stop)\n"


def test_retry_makes_one_new_job_and_the_limit_abandons(command: Command) -> None:
    job_id = failed(command)
    retried = command("retry", job_id)
    assert retried.code == 0
    child = retried.out.strip()
    assert command("retry", job_id).out.strip() == child
    assert state(command, job_id) == "RETRIED"

    command.execute()
    limit = command("retry", child)
    assert (limit.code, limit.out) == (1, "")
    assert f"job {child} has had its 1 retries and is ABANDONED now" in limit.err
    assert f"durable-jobs resubmit {child}" in limit.err

    resubmitted = command("resubmit", child, "--json")
    assert resubmitted.code == 0
    assert (resubmitted.json["replayOf"], resubmitted.json["retryCount"]) == (child, 0)
    assert state(command, child) == "ABANDONED"


def test_what_is_not_failed_cannot_be_retried_or_resubmitted(command: Command) -> None:
    job_id = submit(command, "ECHO", NOTE)
    for verb, said in (("retry", "PENDING, not FAILED"), ("resubmit", "only FAILED and ABANDONED")):
        result = command(verb, job_id)
        assert (result.code, result.out) == (1, "")
        assert said in result.err


def test_a_job_that_may_not_be_retried_can_be_resubmitted(command: Command) -> None:
    job_id = failed(command, "HOPELESS")
    assert command("retry", job_id).code == 1
    assert command("resubmit", job_id).code == 0


def test_many_ids_are_done_one_by_one_and_the_worst_answer_counts(command: Command) -> None:
    first, second = submit(command, "ECHO", NOTE), submit(command, "ECHO", NOTE)
    unknown = str(uuid4())
    result = command("cancel", first, unknown, second, "--json")
    assert result.code == 1
    assert [json.loads(line)["jobId"] for line in result.lines] == [first, second]
    assert f"no job {unknown}" in result.err


def test_an_id_that_is_none_keeps_everything_as_it_is(command: Command) -> None:
    job_id = submit(command, "ECHO", NOTE)
    result = command("cancel", job_id, "x")
    assert (result.code, result.out) == (2, "")
    assert "job id 'x' is not a UUID" in result.err
    assert state(command, job_id) == "PENDING"


def test_a_retry_into_a_full_queue_is_refused_with_3(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    job_id = submit(command, "NARROW")
    owner_connection.execute(
        "UPDATE job_history SET state = 'FAILED', completed_at = now(), failed_reason = 'stalled',"
        " pending_shard = NULL"
    )
    submit(command, "NARROW")
    result = command("retry", job_id)
    assert (result.code, result.out) == (3, "")
    assert "queue 'narrow' is full" in result.err
    assert state(command, job_id) == "FAILED"


def test_a_paused_queue_waits_until_it_is_resumed(command: Command) -> None:
    job_id = submit(command, "BREAK", NOTE)
    assert command("pause", "default").out.startswith("queue default is paused since ")
    assert command("pause", "default", "--json").json["name"] == "default"
    command.execute()
    assert state(command, job_id) == "PENDING"
    assert command("resume", "default").out == "queue default goes on\n"
    command.execute()
    assert state(command, job_id) == "FAILED"


def test_resuming_what_is_not_paused_is_no(command: Command) -> None:
    result = command("resume", "ECHO")
    assert result.code == 1
    assert "type 'ECHO' is not paused" in result.err


def test_a_name_of_a_queue_and_a_type_needs_its_kind(command: Command) -> None:
    ambiguous = command("pause", "both")
    assert ambiguous.code == 2
    assert "'both' is a queue and a job type: add --kind" in ambiguous.err
    assert command("pause", "both", "--kind", "type", "--json").json["kind"] == "type"
    assert command("resume", "both").out == "type both goes on\n"
    assert command("resume", "both").code == 2


def test_unknown_names_are_told_with_what_is_near(command: Command) -> None:
    result = command("pause", "narow")
    assert result.code == 2
    assert "'narow' is neither a queue nor a job type; did you mean narrow?" in result.err
    assert command("pause", "ECHO", "--kind", "queue").code == 2


def test_what_is_paused_and_no_longer_declared_can_be_resumed(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    owner_connection.execute("INSERT INTO paused (kind, name) VALUES ('queue', 'gone')")
    assert command("resume", "gone").out == "queue gone goes on\n"
