"""Lines name the job that they are about, whoever writes them, and hide what is secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from durable_jobs.logs import without_secrets

ROOT = Path(__file__).parents[2]


def lines(log_format: str, level: str = "INFO") -> list[str]:
    """Return what the program logs; nothing may go to stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.log_lines", log_format, level],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout == ""
    assert "invented" not in done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_what_is_no_terminal_gets_json_that_names_the_job(log_format: str) -> None:
    documents = [json.loads(line) for line in lines(log_format)]
    alone, of_tenant = documents[:2]
    assert (alone["event"], alone["level"], alone["logger"]) == ("of nobody", "info", "durable_jobs.anything")
    assert "job_id" not in alone
    assert "tenant_id" not in alone
    assert of_tenant["tenant_id"] == "acme"
    for number, correlation_id in ((1, "order-1"), (2, None)):
        mine = [line for line in documents if line.get("job_id") == str(UUID(int=number))]
        assert {line["tenant_id"] for line in mine} == {f"tenant-{number}"}
        assert {line.get("correlation_id") for line in mine} == {correlation_id}
        events = {line["event"]: line for line in mine}
        assert events.keys() == {"ours", "theirs of a package", "in a thread, Bearer ***", "failed"}
        assert events["ours"]["url"] == "postgresql://me:***@host/db"
        assert events["ours"]["password"] == "***"
        assert events["theirs of a package"]["logger"] == "a.package"
        assert "ValueError: no" in events["failed"]["exception"]
    assert all(line["timestamp"].endswith("Z") for line in documents)


def test_people_get_text_with_the_same_ids() -> None:
    text = "\n".join(lines("text"))
    assert "ours" in text
    assert f"job_id={UUID(int=1)}" in text
    assert "correlation_id=order-1" in text
    assert "ValueError: no" in text


def test_the_level_holds_for_everybody() -> None:
    events = {json.loads(line)["event"] for line in lines("json", "WARNING")}
    assert events == {"in a thread, Bearer ***", "failed"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:secret@host:1/0 is away", "redis://:***@host:1/0 is away"),
        ("rediss://me:s:e@c@host", "rediss://me:***@host"),
        ("https://host/path?x=1@2", "https://host/path?x=1@2"),
        ("write to me@example.org", "write to me@example.org"),
        ("authorization: bearer abc.def", "authorization: bearer ***"),
    ],
)
def test_passwords_and_tokens_are_taken_out_of_texts(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
