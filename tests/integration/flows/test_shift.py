"""execute_jobs in this process: jobs are seen in Prefect, and nothing that they carry is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from durable_jobs import JobState, register_jobs
from durable_jobs.executor.summary import ShiftSummary
from durable_jobs.flows.execute_jobs import execute_jobs
from durable_jobs.jobs import Job
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.integration.flows.prefect_records import Records
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(300)  # the first test starts a Prefect server


async def submitted(name: str, *requests: dict[str, Any]) -> list[Job]:
    with job_tenant_scope("default"):
        return await register_jobs(name, list(requests))


async def shift(**parameters: Any) -> tuple[UUID, ShiftSummary]:
    """Run a shift until nothing is due; return its flow run and its summary."""
    state: Any = await execute_jobs(until_empty=True, return_state=True, **parameters)
    return state.state_details.flow_run_id, await state.result()


async def test_each_job_is_a_task_run_with_its_logs_and_the_shift_leaves_a_summary(
    runtime: OpenRuntime, records: Records
) -> None:
    jobs = await submitted("GREET", {"text": "one"}, {"text": "two"})
    [failing] = await submitted("FAIL", {})
    flow_run, summary = await shift(queues=["shown"])
    assert (summary.count(JobState.SUCCEEDED), summary.count(JobState.FAILED)) == (2, 1)

    async def shown() -> dict[str, Any] | None:
        runs = {run.name: run for run in await records.task_runs(flow_run)}
        settled = all(run.state is not None and run.state.is_final() for run in runs.values())
        return runs if len(runs) == 3 and settled else None

    runs = await eventually(shown)
    assert set(runs) == {*(f"GREET {job.job_id}" for job in jobs), f"FAIL {failing.job_id}"}
    assert runs[f"FAIL {failing.job_id}"].state.is_failed()
    with job_tenant_scope("default"):
        first = await runtime.store.get(jobs[0].job_id)
    assert first.task_run_id == runs[f"GREET {first.job_id}"].id
    assert first.flow_run_id is None

    async def told() -> bool:
        logs = await records.logs(flow_run)
        named = f"[job_id={first.job_id} tenant_id=default]"
        return (f"A greeting of 3 characters {named}", first.task_run_id) in [
            (one.message, one.task_run_id) for one in logs
        ]

    await eventually(told)
    text = (await records.artifacts(flow_run))["shift-summary"]
    assert "**3** jobs claimed, **2** succeeded, **1** failed" in text
    assert "there is nobody to greet" in text
    assert str(failing.job_id) in text


async def test_jobs_of_history_only_are_no_task_runs(runtime: OpenRuntime, records: Records) -> None:
    await submitted("QUIET", {}, {})
    await submitted("GREET", {})
    flow_run, summary = await shift(queues=["shown"])
    assert summary.count(JobState.SUCCEEDED) == 3
    await eventually(lambda: records.task_runs(flow_run))
    assert [run.name.split()[0] for run in await records.task_runs(flow_run)] == ["GREET"]


async def test_lines_name_job_tenant_and_correlation_id_also_those_of_jobs_that_are_not_shown(
    runtime: OpenRuntime, records: Records
) -> None:
    with job_tenant_scope("acme"):
        [shown] = await register_jobs("GREET", [{"text": "one"}], correlation_id="order-7")
        [hidden] = await register_jobs("WARN", [{}], correlation_id="order-8")
    flow_run, _ = await shift(queues=["shown"])

    async def messages() -> set[str] | None:
        found = {one.message for one in await records.logs(flow_run)}
        return found if any("100" in message for message in found) else None

    found = await eventually(messages, timedelta(seconds=60))
    ids = f"[job_id={shown.job_id} tenant_id=acme correlation_id=order-7]"
    await eventually(lambda: _told(records, flow_run, f"A greeting of 3 characters {ids}"))
    [warning] = [message for message in found if "100" in message]
    assert warning.startswith("100 % of it [")
    named = {f"job_id={hidden.job_id}", "tenant_id=acme", "correlation_id=order-8", "secret=***"}
    assert named <= set(warning.partition("[")[2].rstrip("]").split())
    assert not [message for message in found if "not for Prefect" in message]


async def _told(records: Records, flow_run: UUID, line: str) -> bool:
    return line in {one.message for one in await records.logs(flow_run)}


async def test_above_the_cap_jobs_are_only_counted(
    monkeypatch: pytest.MonkeyPatch, runtime: OpenRuntime, records: Records
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_VISIBLE_TASK_RUNS_PER_SECOND", "2")
    await submitted("GREET", *({} for _ in range(20)))
    flow_run, summary = await shift(queues=["shown"])
    assert summary.count(JobState.SUCCEEDED) == 20
    assert summary.shown < 20
    assert summary.shown + summary.not_shown == 20
    assert f"{summary.not_shown} more came faster" in (await records.artifacts(flow_run))["shift-summary"]
    await eventually(lambda: records.task_runs(flow_run))
    assert len(await records.task_runs(flow_run)) <= summary.shown


async def test_neither_payload_nor_result_reaches_prefect(runtime: OpenRuntime, records: Records) -> None:
    await submitted("GREET", {"text": "a-word-nobody-may-read"})
    flow_run, _ = await shift(queues=["shown"])
    await eventually(lambda: records.task_runs(flow_run))
    await eventually(lambda: records.logs(flow_run))
    assert "a-word-nobody-may-read" not in await records.everything_about(flow_run)


async def test_no_names_of_queues_are_all_queues(runtime: OpenRuntime) -> None:
    await submitted("QUIET", {})
    assert (await shift(queues=[]))[1].count(JobState.SUCCEEDED) == 1
