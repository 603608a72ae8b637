"""`submit --wait`: ends with the job, tells how, and says why nothing happens."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable

import psycopg

from tests.support.command import Command
from tests.support.eventually import eventually

NOTE = '{"text": "hello"}'


def finish_work(process: subprocess.Popen[str], work: Callable[[], object]) -> tuple[str, str, str]:
    """Read the id that is printed at once, do the work meanwhile, and return what else was printed."""
    assert process.stdout is not None
    job_id = process.stdout.readline().strip()
    work()
    out, err = process.communicate(timeout=120)
    return job_id, out, err


def test_json_is_the_job_as_it_ended(command: Command, owner_connection: psycopg.Connection) -> None:
    with command.process("submit", "ECHO", NOTE, "--wait", "--json") as process:
        asyncio.run(
            eventually(lambda: owner_connection.execute("SELECT FROM job_history").fetchall() or None)
        )
        command.execute()
        out, _ = process.communicate(timeout=120)
    job = json.loads(out)
    assert (process.returncode, job["state"]) == (0, "SUCCEEDED")
    assert job["result"] == {"status": "OK", "value": "hello"}
    assert command("submit", "ECHO", NOTE, "--wait", "--wait-timeout", "0.1").code == 1


def test_it_ends_at_failed_with_1_and_says_why(command: Command) -> None:
    job_id = command("submit", "BREAK", NOTE, "--idempotency-key", "k").out.strip()
    command.execute()
    result = command("submit", "BREAK", NOTE, "--idempotency-key", "k", "--wait")
    assert (result.code, result.out) == (1, f"{job_id}\n")
    assert f"Job {job_id} is FAILED: ValueError: the disk of hello is full" in result.err


def test_a_chain_is_followed_over_its_retries(command: Command) -> None:
    def fail_twice() -> None:
        command.execute()
        [first] = command("list", "--json").json["jobs"]
        retried = command("retry", first["jobId"]).out.strip()
        command.execute()
        assert command("retry", retried).code == 1

    with command.process("submit", "BREAK", NOTE, "--wait", "--chain") as process:
        job_id, _, err = finish_work(process, fail_twice)
    assert process.returncode == 1
    assert "is ABANDONED: ValueError" in err
    assert job_id not in err  # it is the last retry that is told


def test_a_chain_ends_where_no_retry_can_come(command: Command) -> None:
    command("submit", "HOPELESS", NOTE, "--idempotency-key", "k")
    command.execute()
    result = command("submit", "HOPELESS", NOTE, "--idempotency-key", "k", "--wait", "--chain")
    assert result.code == 1
    assert "is FAILED: NotRetryable: there is no such thing" in result.err


def test_a_job_that_is_over_already_is_not_waited_for(command: Command) -> None:
    command("submit", "ECHO", NOTE, "--idempotency-key", "k")
    command.execute()
    again = command("submit", "ECHO", NOTE, "--idempotency-key", "k", "--wait")
    assert (again.code, len(again.lines)) == (0, 1)


def test_it_says_that_nobody_is_on_duty_and_gives_up_in_time(command: Command) -> None:
    result = command("submit", "ECHO", NOTE, "--wait", "--wait-timeout", "0.2")
    assert result.code == 1
    assert "Still waiting: no shift is on duty for queue both; start the stack with" in result.err
    assert f"Not waiting any longer: job {result.out.strip()} is PENDING" in result.err


def test_it_says_that_nobody_on_duty_declares_the_type(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    owner_connection.execute(
        "INSERT INTO job_executors (executor_id, host, pid, queues, job_types)"
        " VALUES (gen_random_uuid(), 'a', 1, '{both}', '{OTHER}')"
    )
    result = command("submit", "ECHO", NOTE, "--wait", "--wait-timeout", "0.2")
    assert "Still waiting: no shift on duty declares the type ECHO; name its module in" in result.err
    owner_connection.execute("UPDATE job_history SET run_at = now() - interval '1 hour'")
    oldest = next(c for c in command("check", "--json").json["checks"] if c["name"] == "oldest waiting job")
    assert "no shift on duty declares this type" in oldest["message"]


def test_it_says_what_is_paused_or_not_due(command: Command) -> None:
    command("pause", "ECHO")
    paused = command("submit", "ECHO", NOTE, "--wait", "--wait-timeout", "PT0.2S")
    assert "Still waiting: type ECHO is paused (durable-jobs resume ECHO)" in paused.err
    command("resume", "ECHO")
    later = ["--run-at", "2100-01-31T08:00:00Z"]
    early = command("submit", "ECHO", NOTE, *later, "--wait", "--wait-timeout", "0.2s")
    assert "Still waiting: the job is to run at 2100-01-31 08:00:00Z" in early.err


def test_ctrl_c_ends_the_waiting_and_not_the_job(command: Command) -> None:
    with command.process("submit", "ECHO", NOTE, "--wait") as process:
        job_id, _, err = finish_work(process, lambda: process.send_signal(signal.SIGINT))
    assert process.returncode == 130
    assert f"The job goes on without being waited for: durable-jobs get {job_id}" in err
    assert "Traceback" not in err
    command.execute()
    assert command("get", job_id, "--json").json["state"] == "SUCCEEDED"
