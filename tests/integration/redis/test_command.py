"""`durable-jobs redis` prints what the flow sees, and its exit code tells whether all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from durable_jobs.blocks.redis_target import RedisTargetBlock
from durable_jobs.embedded.ports import free_port
from tests.integration.redis.servers import RedisServer


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with only these settings."""
    ours = ("DURABLE_JOBS_", "PREFECT_API_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [str(Path(sys.executable).parent / "durable-jobs"), "redis", *arguments]
    return subprocess.run(command, env=kept | environment, capture_output=True, text=True, timeout=120)


def test_a_healthy_redis_exits_0_with_each_check(server: RedisServer) -> None:
    url = f"redis://:invented@127.0.0.1:{server.port}"
    done = run(DURABLE_JOBS_REDIS_URL=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == [
        "connection", "latency", "tls", "certificate", "auth", "role",
        "replication", "memory", "eviction", "writes", "persistence",
    ]  # fmt: skip
    assert "invented" not in done.stdout


def test_json_tells_the_same_and_a_failure_exits_1() -> None:
    done = run("--json", DURABLE_JOBS_REDIS_URL=f"redis://:invented@127.0.0.1:{free_port()}")
    document = json.loads(done.stdout)
    (target,) = document["targets"]
    first = target["checks"][0]
    assert (done.returncode, document["healthy"], target["healthy"]) == (1, False, False)
    assert (first["check"], first["outcome"], first["kind"]) == ("connection", "failed", "refused")
    assert "invented" not in done.stdout


def test_no_redis_is_said_and_is_no_error() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (0, "")
    assert "DURABLE_JOBS_REDIS_URL" in done.stderr
    assert json.loads(run("--json").stdout) == {"healthy": True, "targets": []}


def test_a_block_without_a_prefect_server_is_refused_with_the_way_out(tmp_path: Path) -> None:
    done = run("--block", "command", PREFECT_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "PREFECT_API_URL is not set" in done.stderr
    away = f"http://127.0.0.1:{free_port()}/api"
    done = run("--block", "command", PREFECT_HOME=str(tmp_path), PREFECT_API_URL=away)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no Prefect server answers at {away}" in done.stderr
    assert "Traceback" not in done.stderr


def test_t6_an_insecure_url_in_production_exits_2() -> None:
    done = run(DURABLE_JOBS_ENVIRONMENT="production", DURABLE_JOBS_REDIS_URL="redis://:invented@h")
    assert (done.returncode, done.stdout) == (2, "")
    assert "DURABLE_JOBS_REDIS_URL" in done.stderr
    assert "invented" not in done.stderr


@pytest.mark.usefixtures("prefect_harness")
async def test_a_block_can_be_named(server: RedisServer) -> None:
    await RedisTargetBlock(host="127.0.0.1", port=server.port, password="invented").asave(
        "command", overwrite=True
    )
    done = run("--json", "--block", "command", PREFECT_API_URL=PREFECT_API_URL.value())
    assert done.returncode == 0, done.stderr
    assert [target["target"] for target in json.loads(done.stdout)["targets"]] == ["command"]
