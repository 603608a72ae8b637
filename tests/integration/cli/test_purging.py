"""`purgeable`, `purge`, and what `check` says of them."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.support.command import Command
from tests.support.history import DAY, add_chain, add_job, add_jobs, job_ids, rows_of

OLD = 31 * DAY


@pytest.fixture
def owner(command: Command, owner_connection: psycopg.Connection) -> psycopg.Connection:
    """The owner of the command's database."""
    return owner_connection


def test_what_purgeable_lists_is_what_purge_takes(command: Command, owner: psycopg.Connection) -> None:
    add_jobs(owner, 4, OLD, tenant="a", job_type="MAIL", effects=True)
    add_jobs(owner, 2, OLD, tenant="b", state="FAILED")
    add_chain(owner, [OLD, DAY], tenant="b")
    listed = command("purgeable", "--json").json
    assert (listed["jobs"], listed["keptWithChain"], listed["effects"]) == (6, 1, 0)
    groups = {(g["tenantId"], g["jobType"], g["state"]): g["jobs"] for g in listed["groups"]}
    assert groups == {("a", "MAIL", "SUCCEEDED"): 4, ("b", "WORK", "FAILED"): 2}
    assert listed["bytes"] == sum(group["bytes"] for group in listed["groups"])
    shown = command("purgeable")
    assert shown.lines[0].split() == ["TENANT", "TYPE", "STATE", "JOBS", "BYTES", "OLDEST", "YOUNGEST"]
    assert shown.lines[1].split()[:4] == ["a", "MAIL", "SUCCEEDED", "4"]
    assert "Kept although old: 1 jobs" in shown.err
    dry = command("purge", "--dry-run")
    assert dry.out.startswith("nothing went; a purge would take 6 jobs")
    assert rows_of(owner, "job_history") == 8
    done = command("purge", "--json")
    assert done.code == 0
    assert {name: done.json[name] for name in ("jobs", "bytes")} == {
        name: listed[name] for name in ("jobs", "bytes")
    }
    assert rows_of(owner, "job_history") == 2
    assert command("purge").out.startswith("0 jobs")


def test_a_purge_of_one_tenant_leaves_the_others_and_is_not_the_nightly_one(
    command: Command, owner: psycopg.Connection
) -> None:
    mine, other = add_job(owner, OLD, tenant_id="mine"), add_job(owner, OLD, tenant_id="other")
    assert command("purgeable", "--tenant", "mine", "--json").json["jobs"] == 1
    assert command("purge", "--tenant", "mine", "--json").json["jobs"] == 1
    assert job_ids(owner) == {other}
    assert mine not in job_ids(owner)
    assert rows_of(owner, "purge_runs") == 0


def test_periods_are_durations_over_the_floor(command: Command, owner: psycopg.Connection) -> None:
    add_job(owner, 3 * DAY)
    assert command("purgeable", "--older-than", "P2D", "--json").json["jobs"] == 1
    refused = command("purge", "--older-than", "23h")
    assert (refused.code, refused.out) == (2, "")
    assert "under the floor of 1 day" in refused.err
    assert "DURABLE_JOBS_MIN_RETENTION" in refused.err
    assert command("purge", "--older-than", "soon").code == 2
    assert command("purge", "--effects-older-than", "0").code == 2
    assert command("purge", "--redis-prefix", "").code == 2
    assert rows_of(owner, "job_history") == 1
    assert command("purge", "--older-than", "2d", "--redis-older-than", "1d").code == 0
    assert rows_of(owner, "job_history") == 0


def test_a_purge_that_left_something_is_a_no_and_check_tells_of_it(
    command: Command, owner: psycopg.Connection, admin_url: str
) -> None:
    def told() -> tuple[str, str]:
        [finding] = [one for one in command("check", "--json").json["checks"] if one["name"] == "retention"]
        return finding["status"], finding["message"]

    assert told() == ("ok", "no purge has run yet")
    held = add_job(owner, OLD)
    with psycopg.connect(admin_url) as other:
        other.execute("SELECT FROM job_history WHERE job_id = %s FOR UPDATE", [held])
        refused = command("purge")
        assert refused.code == 1
        assert str(held) in refused.err
        assert told()[0] == "warning"
        command("purge")
        assert told()[0] == "failed"
        assert told()[1].startswith("the last 2 purges failed: retention: tenant 'acme': 1 jobs are due")
    assert command("purge").code == 0
    assert told()[0] == "ok"
    assert told()[1].startswith("the last purge succeeded at ")
    long_ago = timedelta(hours=50)
    owner.execute("UPDATE purge_runs SET finished_at = finished_at - %s", [long_ago])
    assert told()[0] == "warning"
