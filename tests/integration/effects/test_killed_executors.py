"""EXE-3 and EXE-4 with real processes: kill -9 after each effect, and between a call and its confirmation."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durable_jobs import Job, JobState
from durable_jobs.executor.shift import Shift
from durable_jobs.loading import load_registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import Decision
from durable_jobs.tenants import job_tenant_scope
from tests.integration.effects.provider import Provider
from tests.support.eventually import eventually
from tests.support.jobs import new_job
from tests.support.probes import PgProbe, Row

ROOT = Path(__file__).parents[3]
STEPS = Path(__file__).with_name("steps.py")
TENANT = "acme"
MINUTE = timedelta(minutes=1)


class Executors:
    """Executors as processes, their jobs, and the part of the reconciler."""

    def __init__(self, store: PgJobsStore, settings: Settings, folder: Path, probe: PgProbe) -> None:
        self.store, self.settings, self.probe = store, settings, probe
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start an executor that ends when nothing is due."""
        command = [sys.executable, "-m", "tests.integration.effects.executor_process"]
        inherited = os.environ | {
            "DURABLE_JOBS_DATABASE_URL": str(self.settings.require_database_url()),
            "DURABLE_JOBS_MODULES": str(STEPS),
        }
        self._started.append(subprocess.Popen(command, env=inherited | environment, cwd=ROOT))
        return self._started[-1]

    async def submit(self, name: str, **order: Any) -> Job:
        with job_tenant_scope(TENANT):
            new = new_job(order, job_type=name, queue="steps", max_retries=5)
            return (await self.store.register_idempotent([new]))[0].job

    async def get(self, job: Job) -> Job:
        with job_tenant_scope(TENANT):
            return await self.store.get(job.job_id)

    async def killed_where_they_stop(self, jobs: int) -> None:
        """Start an executor and kill it with -9 when so many jobs have stopped."""
        process = self.start(STOP=str(self._folder))

        def stopped() -> bool:
            return len(list(self._folder.iterdir())) == jobs or process.poll() is not None

        await eventually(stopped, MINUTE)
        assert process.poll() is None, "it ended before every job had stopped"
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    async def orphans_fail(self) -> None:
        """Do what the reconciler does with the jobs of a dead executor."""
        silent = [view.executor.executor_id for view in await self.store.executors()]
        settled = await self.store.settle_orphans(
            TENANT, silent, lambda _: Decision(replay=False), max_crashes=9, limit=100
        )
        assert set(settled.values()) == {JobState.FAILED}
        for executor in silent:
            await self.store.leave_executor(executor)

    async def retried(self, jobs: list[Job]) -> list[Job]:
        """Retry failed jobs in this process, and return the retries."""
        with job_tenant_scope(TENANT):
            children = [await self.store.retry(job.job_id, max_pending=None) for job in jobs]
        # Suspects of a crash run alone otherwise.
        self.probe.run("UPDATE job_history SET crash_count = 0 WHERE state = 'PENDING'")
        registry = load_registry([str(STEPS)])
        async with asyncio.timeout(60):
            await Shift(self.store, registry, self.settings, until_empty=True, queues=["steps"]).run()
        return [await self.get(child) for child in children]

    def effects(self) -> dict[tuple[str, str], Row]:
        """Return the effects by key and type."""
        return {(row["key"], row["effect_type"]): row for row in self.probe.effects()}

    def stop(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def executors(
    pg_store: PgJobsStore,
    database_url: str,
    provider: Provider,
    tmp_path: Path,
    owner_connection: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Executors]:
    monkeypatch.setenv("PROVIDER", provider.url)
    monkeypatch.setenv("LETTERS", database_url)
    settings = Settings.load(database_url=database_url)
    executors = Executors(pg_store, settings, tmp_path, PgProbe(owner_connection))
    yield executors
    executors.stop()


MOMENTS = ["after mail", "after call", "before the commit of row", "after row"]


async def test_exe3_killed_after_each_effect_the_retry_makes_the_rest(
    executors: Executors, provider: Provider, letters: Any
) -> None:
    jobs = [await executors.submit("THREE_EFFECTS", number=n, stop_at=at) for n, at in enumerate(MOMENTS)]
    await executors.killed_where_they_stop(len(jobs))
    done = Counter(work["what"] for work in provider.done)
    assert done == {"mail 0": 1, **{f"{step} {n}": 1 for step in ("mail", "call") for n in (1, 2, 3)}}
    assert letters() == ["3"]
    await executors.orphans_fail()

    retries = await executors.retried(jobs)

    assert [retry.state for retry in retries] == [JobState.SUCCEEDED] * 4, [r.failed_reason for r in retries]
    assert [retry.result["status"] for retry in retries] == ["OK", "OK", "OK", "SKIPPED"]
    done = Counter(work["what"] for work in provider.done)
    assert done == {f"{step} {n}": 1 for step in ("mail", "call") for n in range(4)}
    assert sorted(letters()) == ["0", "1", "2", "3"]
    made_by = {key: row["job_id"] for key, row in executors.effects().items()}
    assert {row["state"] for row in executors.effects().values()} == {"CONFIRMED"}
    for n, (job, retry) in enumerate(zip(jobs, retries, strict=True)):
        expected = {"mail": job, "call": job if n >= 1 else retry, "row": job if n == 3 else retry}
        assert {step: made_by[str(job.job_id), step] for step in expected} == {
            step: maker.job_id for step, maker in expected.items()
        }


async def test_exe3_twins_of_one_order_in_two_executors_make_its_effect_once(
    executors: Executors, provider: Provider
) -> None:
    jobs = [await executors.submit("PAYMENT", number=7) for _ in range(6)]
    processes = [executors.start() for _ in range(2)]
    for process in processes:
        assert await asyncio.to_thread(process.wait, 60) == 0
    results = Counter([(await executors.get(job)).result["status"] for job in jobs])
    assert results == {"OK": 1, "SKIPPED": 5}
    assert provider.times("payment 7") == 1


async def test_exe4_killed_between_call_and_confirmation_the_policy_decides(
    executors: Executors, provider: Provider
) -> None:
    provider.respects_keys = True
    before, behind = "before the call", "before the confirmation"
    cases = [(policy, at) for policy in ("stop", "repeat", "probe") for at in (before, behind)]
    jobs = [
        await executors.submit("PAYMENT", number=n, policy=policy, stop_at=at)
        for n, (policy, at) in enumerate(cases)
    ]
    await executors.killed_where_they_stop(len(jobs))
    assert {row["state"] for row in executors.effects().values()} == {"RESERVED"}
    assert {work["what"] for work in provider.done} == {"payment 1", "payment 3", "payment 5"}
    await executors.orphans_fail()

    retries = dict(zip(cases, await executors.retried(jobs), strict=True))

    # Stopped for a person, whether it had happened or not: nothing was done, nothing repeated.
    for number, at in enumerate((before, behind)):
        stopped = retries["stop", at]
        assert (stopped.state, stopped.retryable) == (JobState.FAILED, False)
        assert "durable-jobs effects confirm" in (stopped.failed_reason or "")
        assert executors.effects()[f"order {number}", "PAYMENT"]["state"] == "UNKNOWN"
    assert "payment 0" not in {work["what"] for work in provider.done}
    # Repeated under the provider's own key, and asked for: once each, whatever was lost.
    assert [retries[case].result["status"] for case in cases[2:]] == ["OK", "OK", "OK", "SKIPPED"]
    assert Counter(work["what"] for work in provider.done) == dict.fromkeys(
        (f"payment {number}" for number in range(1, 6)), 1
    )
    assert provider.calls == 6
    assert {executors.effects()[f"order {n}", "PAYMENT"]["state"] for n in range(2, 6)} == {"CONFIRMED"}
    assert retries["probe", behind].result["value"]["originalJobId"] == str(jobs[5].job_id)
