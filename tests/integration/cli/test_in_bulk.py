"""`retry` and `resubmit` by a filter, `get --chain`, and the policies that `config` shows."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.test_acting import failed, state
from tests.support.command import Command


@pytest.mark.parametrize("act", ["retry", "resubmit"])
def test_nothing_is_meant_without_an_id_or_a_filter(command: Command, act: str) -> None:
    job_id = failed(command)
    result = command(act)
    assert (result.code, result.out) == (2, "")
    assert "--reason-like % means all of them" in result.err
    assert state(command, job_id) == "FAILED"


def test_a_dry_run_shows_and_changes_nothing(command: Command) -> None:
    job_id = failed(command)
    failed(command, "HOPELESS")
    shown = command("retry", "--type", "BREAK", "--since", "1h", "--dry-run")
    assert shown.code == 0
    assert job_id in shown.out
    assert "1 jobs fit; nothing was changed" in shown.err
    listed = command("resubmit", "--reason-like", "%", "--dry-run", "--json")
    assert {json.loads(line)["jobType"] for line in listed.lines} == {"BREAK", "HOPELESS"}
    assert command("retry", "--reason-like", "no such reason", "--dry-run").code == 0
    assert state(command, job_id) == "FAILED"


def test_retry_takes_what_fits_and_gives_up_what_is_at_its_limit(command: Command) -> None:
    first, second = failed(command), failed(command)
    other = failed(command, "HOPELESS")
    result = command("retry", "--reason-like", "DISK of % is full")
    assert (result.code, len(result.lines)) == (0, 2), result.err
    assert [state(command, job_id) for job_id in (first, second)] == ["RETRIED"] * 2
    command.execute()
    result = command("retry", "--type", "BREAK")
    assert (result.code, result.out) == (0, "")
    assert "0 retried, 2 abandoned at their limit" in result.err
    assert state(command, other) == "FAILED"


def test_resubmit_takes_what_is_over_once(command: Command) -> None:
    hopeless = failed(command, "HOPELESS")
    result = command("resubmit", "--type", "HOPELESS", "--json")
    assert result.code == 0
    new = json.loads(result.out)["jobId"]
    assert command("get", new, "--json").json["replayOf"] == hopeless
    again = command("resubmit", "--type", "HOPELESS")
    assert (again.code, again.out) == (0, "")


def test_the_chain_is_one_story(command: Command) -> None:
    job_id = failed(command)
    child = command("retry", job_id).out.strip()
    command.execute()
    shown = command("get", child, "--chain")
    assert shown.code == 0
    assert [line.split()[0] for line in shown.lines[1:3]] == [job_id, child]
    assert "1 of 2" in shown.lines[1]
    assert "retried by" in shown.lines[1]
    assert "FAILED; no retry remains" in shown.out
    story = command("get", job_id, "--chain", "--json").json
    assert [job["jobId"] for job in story["jobs"]] == [job_id, child]
    assert story["attemptsLeft"] == 0
    assert "jobs.job.retried" in [event["event"] for event in story["events"]]


def test_config_shows_the_policies(command: Command) -> None:
    policies = command("config", "--json").json["policies"]
    assert policies["TRANSFER_COMPLETE"] == {"maxRetries": 0, "retryable": False}
    assert policies["BLOCKCHAIN_ANCHOR"] == {"maxRetries": 5, "retryable": True}
    assert len(policies) == 11
    assert "TRANSFER_COMPLETE" in command("config").out
