"""`config` and `workers`."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.support.command import Command

SECRETS = {
    "DURABLE_JOBS_DATABASE_URL": "postgresql://boss:topsecret@db.example:6543/shop?passfile=topsecret",
    "DURABLE_JOBS_ADMIN_DATABASE_URL": "topsecret",
    "DURABLE_JOBS_REDIS_URL": "redis://:topsecret@redis.example:6379/0",
}


def test_config_hides_secrets_and_needs_no_database(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    document, text = command("config", "--json"), command("config")
    assert (document.code, text.code) == (0, 0)
    assert "topsecret" not in document.out + text.out
    settings = document.json["settings"]
    assert settings["databaseUrl"] == "postgresql://boss:***@db.example:6543/shop"
    assert settings["adminDatabaseUrl"] == "***"
    assert settings["redisUrl"] == "redis://:***@redis.example:6379/0"
    assert settings["heartbeatInterval"] == "PT10S"
    assert "DURABLE_JOBS_HEARTBEAT_INTERVAL" in text.out


def test_config_shows_queues_and_job_types_with_their_policies(command: Command) -> None:
    document = command("config", "--json").json
    queues = {queue["name"]: queue for queue in document["queues"]}
    assert queues["narrow"] == {"name": "narrow", "concurrency": 1, "maxPending": 2, "isolation": "shared"}
    assert queues["both"]["maxPending"] is None
    assert {"default", "fast", "deep"} <= set(queues)
    [echo] = [declared for declared in document["jobTypes"] if declared["name"] == "ECHO"]
    assert (echo["queue"], echo["maxRetries"], echo["timeout"]) == ("both", 1, "PT1M")
    assert (echo["onOrphan"], echo["visibility"], echo["version"]) == ("fail", "task_run", 1)
    assert echo["payload"]["required"] == ["text"]
    assert "text [times]" in command("config").out


def test_a_payload_that_has_no_json_schema_is_shown_all_the_same(command: Command, tmp_path: Path) -> None:
    """Such a field is stored and read back by its serializer and its validator."""
    module = tmp_path / "odd.py"
    module.write_text(
        "from typing import Annotated\n"
        "from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer\n"
        "from durable_jobs import JobContext, job_type\n"
        "class Odd(BaseModel):\n"
        "    model_config = ConfigDict(arbitrary_types_allowed=True)\n"
        "    value: Annotated[range, BeforeValidator(range), PlainSerializer(len)]\n"
        "@job_type('ODD')\n"
        "async def odd(request: Odd, context: JobContext) -> None: ...\n"
    )
    result = command.alone("config", "--json", DURABLE_JOBS_MODULES=str(module))
    assert result.code == 0, result.err
    [odd] = [kind for kind in result.json["jobTypes"] if kind["name"] == "ODD"]
    assert odd["payload"]["title"] == "Odd"
    assert "No JSON schema" in odd["payload"]["description"]
    assert command.alone("config", DURABLE_JOBS_MODULES=str(module)).code == 0


def test_workers_are_listed_with_what_they_hold_and_how_long_they_are_silent(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    nobody = command("workers")
    assert nobody.code == 0
    assert "Nobody is on duty" in nobody.err
    owner_connection.execute(
        "INSERT INTO job_executors (executor_id, host, pid, queues, started_at, last_seen_at)"
        " VALUES (gen_random_uuid(), 'here', 7, '{both}', now(), now()),"
        " (gen_random_uuid(), 'there', 8, '{both}', now() - interval '1 h', now() - interval '5 min')"
    )
    owner_connection.execute(
        "INSERT INTO queue_leases (queue, executor_id, held)"
        " SELECT 'both', executor_id, 4 FROM job_executors WHERE pid = 7"
    )
    here, there = command("workers", "--json").json["workers"]
    assert (here["host"], here["pid"], here["state"], here["held"]) == ("here", 7, "working", {"both": 4})
    assert (there["state"], there["queues"], there["held"]) == ("silent", ["both"], {})
    assert 299 < there["silenceSeconds"] < 330
    table = command("workers").lines
    assert "here:7" in table[1]
    assert table[1].endswith("both 4")
