"""Prefect refuses, and people press Ctrl-C: jobs are none the worse for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from prefect.settings import PREFECT_API_URL

from durable_jobs import register_jobs
from durable_jobs.tasks.reconciling import settle_orphans
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.support.eventually import eventually
from tests.support.jobs import enter
from tests.support.tcp_proxy import proxied

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LONG = timedelta(seconds=90)
ROOT = Path(__file__).parents[3]
PROGRAM = (
    "import asyncio; from durable_jobs.flows.execute_jobs import execute_jobs; asyncio.run(execute_jobs())"
)

pytestmark = pytest.mark.timeout(300)  # the first test starts a Prefect server


async def submit(name: str, count: int, **data: Any) -> list[UUID]:
    with job_tenant_scope("default"):
        return [job.job_id for job in await register_jobs(name, [data] * count)]


def states(owner: psycopg.Connection, ids: list[UUID]) -> list[str]:
    rows = owner.execute("SELECT state FROM job_history WHERE job_id = ANY (%s)", [ids])
    return sorted(state for (state,) in rows)


async def until(owner: psycopg.Connection, ids: list[UUID], state: str) -> None:
    await eventually(lambda: states(owner, ids) == [state] * len(ids), LONG)


@contextmanager
def program(folder: Path, api: str) -> Iterator[subprocess.Popen[str]]:
    """Await a shift in a process of its own, as a script does; Prefect's API is at `api`."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PREFECT_API_URL": api, "DURABLE_JOBS_SHUTDOWN_GRACE": "60"},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def test_while_prefect_answers_503_a_shift_goes_on(
    runtime: OpenRuntime, owner: psycopg.Connection, tmp_path: Path
) -> None:
    async with proxied(PREFECT_API_URL.value(), end_of_answer=b"") as proxy:
        with program(tmp_path, proxy.url) as process:
            await until(owner, await submit("GREET", 3), "SUCCEEDED")
            running = await submit("GREET", 3, seconds=1)
            await until(owner, running, "RUNNING")
            proxy.answer(REFUSAL)
            await until(owner, running, "SUCCEEDED")
            await until(owner, await submit("FAIL", 2), "FAILED")
            assert process.poll() is None
            proxy.restore()
            await until(owner, await submit("GREET", 3), "SUCCEEDED")
            # A successor, so that this shift ends.
            await enter(runtime.store, "shown")
            await eventually(lambda: process.poll() is not None, LONG)
        assert process.returncode == 0, (tmp_path / "log").read_text()
    rows = owner.execute("SELECT DISTINCT claim_count, crash_count FROM job_history").fetchall()
    assert rows == [(1, 0)]


async def test_ctrl_c_gives_jobs_back_and_ends_the_program(
    runtime: OpenRuntime, owner: psycopg.Connection, tmp_path: Path
) -> None:
    again = await submit("AGAIN", 3, seconds=600)
    with program(tmp_path, PREFECT_API_URL.value()) as process:
        await until(owner, again, "RUNNING")
        process.send_signal(signal.SIGINT)
        await eventually(lambda: process.poll() is not None, LONG)
        assert process.returncode != 0, (tmp_path / "log").read_text()
    assert states(owner, again) == ["PENDING"] * 3
    assert owner.execute("SELECT DISTINCT crash_count FROM job_history").fetchall() == [(0,)]


@pytest.mark.parametrize("apart", [0.0, 0.02, 0.05])
async def test_ctrl_c_again_and_again_is_no_failure_of_a_job(
    runtime: OpenRuntime, owner: psycopg.Connection, tmp_path: Path, apart: float
) -> None:
    again = await submit("AGAIN", 3, seconds=600)
    with program(tmp_path, PREFECT_API_URL.value()) as process:
        await until(owner, again, "RUNNING")
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            await asyncio.sleep(apart)

    async def settled() -> bool:
        # Whoever insists may end the program before it has given its jobs back.
        await settle_orphans(runtime)
        return states(owner, again) == ["PENDING"] * 3

    await eventually(settled, LONG)
