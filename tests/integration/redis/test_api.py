"""T-27: what the API says of Redis is what the checks find, now; and a purge of Redis counts right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.integration.redis.servers import RedisServer
from tests.support.api_server import COMMAND, PATIENT, served, token
from tests.support.processes import ROOT

DAY = 86_400


def checks(document: dict[str, Any]) -> dict[str, str]:
    (target,) = document["targets"]
    return {check["check"]: check["outcome"] for check in target["checks"]}


def command(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `durable-jobs redis` through the API."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DURABLE_JOBS_")}
    return subprocess.run(
        [COMMAND, "--api-url", url, "redis", *options],
        env=kept | {"DURABLE_JOBS_TOKEN": token()},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_health_of_redis_is_right_while_it_lives_and_when_it_has_gone(database_url: str) -> None:
    with RedisServer("--requirepass", "invented", "--appendonly", "yes") as redis:
        url = f"redis://:invented@127.0.0.1:{redis.port}"
        with served(database_url, DURABLE_JOBS_REDIS_URL=url, **PATIENT) as api, api.client() as client:
            well = client.get("/health/redis")
            assert (well.status_code, well.json()["healthy"], well.json()["configured"]) == (200, True, True)
            assert checks(well.json())["connection"] == "ok"
            shown = command(api.url)
            assert (shown.returncode, shown.stdout.split()[0], shown.stderr) == (0, "default", "")
            redis.stop()
            ill = client.get("/health/redis")
            assert (ill.status_code, ill.json()["healthy"]) == (503, False)
            assert checks(ill.json())["connection"] == "failed"
            shown = command(api.url, "--json")
            assert (shown.returncode, checks(json.loads(shown.stdout))["connection"]) == (1, "failed")
            purge = client.delete("/jobs/purge", params={"target": "redis"})
            assert purge.status_code == 503
            # The service itself does not depend on Redis.
            api.wait_until_ready()
            assert "invented" not in well.text + ill.text + purge.text + api.log
            redis.start()
            assert client.get("/health/redis").status_code == 200


def test_a_purge_of_redis_counts_what_goes(database_url: str) -> None:
    with RedisServer("--requirepass", "invented") as redis:
        spec = {
            "port": redis.port, "password": "invented", "prefix": "pv:jobs", "queue": "default",
            "age": 8 * DAY, "completed": 3, "failed": 2, "waiting": 4,
        }  # fmt: skip
        made = [sys.executable, "-m", "tests.support.bullmq_jobs", json.dumps([spec])]
        subprocess.run(made, cwd=ROOT, check=True, capture_output=True, timeout=120)
        url = f"redis://:invented@127.0.0.1:{redis.port}"
        with served(database_url, DURABLE_JOBS_REDIS_URL=url, **PATIENT) as api, api.client() as client:
            dry = client.delete("/jobs/purge", params={"target": "redis", "dryRun": True}).json()
            assert (dry["redis"], dry["dryRun"], dry["target"]) == (5, True, "redis")
            gone = client.delete("/jobs/purge", params={"target": "redis", "olderThan": "7d"}).json()
            assert (gone["redis"], gone["left"]) == (5, 0)
            assert client.delete("/jobs/purge", params={"target": "redis"}).json()["redis"] == 0


def test_without_a_redis_there_is_nothing_to_purge(database_url: str) -> None:
    with served(database_url) as api, api.client() as client:
        answer = client.delete("/jobs/purge", params={"target": "redis"})
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:durable-jobs:problem:no-redis")
