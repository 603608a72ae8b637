"""jobs_reconcile in this process: orphans, a missing shift, flow runs of dead processes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending, Running

from durable_jobs.errors import UnknownQueue
from durable_jobs.flows.jobs_reconcile import jobs_reconcile
from durable_jobs.flows.pause_queue import pause_queue
from durable_jobs.reconciling import ReconcileReport
from durable_jobs.stores.protocols import RemovedExecutor
from durable_jobs.tasks.reconciling import SHIFT, repair_runs
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.integration.flows.prefect_records import Records
from tests.support.eventually import eventually
from tests.support.jobs import enter, new_job

NOBODY = "http://127.0.0.1:9/api"

pytestmark = pytest.mark.timeout(300)  # the first test starts a Prefect server


async def one_pass() -> UUID:
    state: Any = await jobs_reconcile(return_state=True)
    assert state.is_completed(), state.message
    return UUID(str(state.state_details.flow_run_id))


def passes(owner: psycopg.Connection) -> list[Any]:
    return owner.execute("SELECT payload FROM job_events WHERE event = 'jobs.reconcile.completed'").fetchall()


def beating_every(runtime: OpenRuntime, **duration: float) -> OpenRuntime:
    settings = runtime.settings.model_copy(update={"heartbeat_interval": timedelta(**duration)})
    return runtime._replace(settings=settings)


async def make_silent(owner: psycopg.Connection) -> None:
    owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 day'")


async def test_a_pass_settles_orphans_and_tells_of_it(
    runtime: OpenRuntime, records: Records, owner: psycopg.Connection
) -> None:
    dead = await enter(runtime.store, "work")
    with job_tenant_scope("acme"):
        await runtime.store.register_idempotent([new_job(job_type="GREET") for _ in range(3)])
    assert len((await runtime.store.claim(dead, "work", 5)).jobs) == 3
    await make_silent(owner)
    flow_run = await one_pass()
    assert owner.execute("SELECT DISTINCT state, failed_reason FROM job_history").fetchall() == [
        ("FAILED", "stalled")
    ]
    [(told,)] = passes(owner)
    assert (told["silentExecutors"], told["orphans"], told["tenantsWithFaults"]) == (1, 3, 0)
    text = (await records.artifacts(flow_run))["on-duty"]
    assert "Nobody is on duty" in text
    assert "| acme | FAILED | 3 |" in text


async def test_of_two_passes_at_once_one_steps_aside(runtime: OpenRuntime, owner: psycopg.Connection) -> None:
    async with runtime.store.only_one("reconcile") as alone:
        assert alone
        await one_pass()
        assert passes(owner) == []
    await one_pass()
    assert len(passes(owner)) == 1


async def test_a_missing_shift_is_started_once(deployed: dict[str, UUID], records: Records) -> None:
    await one_pass()
    await one_pass()
    assert len(await records.runs_of(deployed[SHIFT])) == 1


async def test_no_shift_is_started_while_one_beats(
    runtime: OpenRuntime, deployed: dict[str, UUID], records: Records
) -> None:
    await enter(runtime.store, "shown")
    assert not (await repair_runs(beating_every(runtime, minutes=1), ReconcileReport())).started_shift
    assert await records.runs_of(deployed[SHIFT]) == []


async def test_one_that_died_a_moment_ago_is_replaced_in_this_pass(
    runtime: OpenRuntime, deployed: dict[str, UUID]
) -> None:
    await enter(runtime.store, "shown")
    await eventually(lambda: runtime.store.silent_executors(stale_after=timedelta(seconds=2)))
    assert (await repair_runs(beating_every(runtime, seconds=1), ReconcileReport())).started_shift


async def test_one_that_does_not_execute_all_of_our_types_is_not_enough(
    runtime: OpenRuntime, deployed: dict[str, UUID]
) -> None:
    await enter(runtime.store, "shown", job_types=("GREET",))
    assert (await repair_runs(beating_every(runtime, minutes=1), ReconcileReport())).started_shift


async def test_the_flow_run_of_a_dead_executor_is_closed(
    runtime: OpenRuntime, deployed: dict[str, UUID], client: PrefectClient, owner: psycopg.Connection
) -> None:
    run = await client.create_flow_run_from_deployment(deployed[SHIFT])
    await client.set_flow_run_state(run.id, Running(), force=True)
    await enter(runtime.store, "shown", flow_run_id=run.id)
    await make_silent(owner)
    await one_pass()
    assert (await client.read_flow_run(run.id)).state_type is StateType.CRASHED


async def test_it_is_closed_later_when_prefect_was_away_as_its_executor_died(
    runtime: OpenRuntime, deployed: dict[str, UUID], client: PrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await client.create_flow_run_from_deployment(deployed[SHIFT])
    await client.set_flow_run_state(run.id, Running(), force=True)
    report = ReconcileReport(removed=[RemovedExecutor(run.id, run.id)])
    with temporary_settings({PREFECT_API_URL: NOBODY}):
        assert (await repair_runs(runtime, report)).closed == 0
    monkeypatch.setenv("DURABLE_JOBS_RUNNING_STALE_AFTER", "0.01")
    await one_pass()
    assert (await client.read_flow_run(run.id)).state_type is StateType.CRASHED


async def test_runs_that_are_worked_on_or_starting_are_left_alone(
    runtime: OpenRuntime, deployed: dict[str, UUID], client: PrefectClient
) -> None:
    worked_on, starting, other = [
        await client.create_flow_run_from_deployment(deployed[name])
        for name in (SHIFT, "jobs-reconcile/every-minute", "redis-health/every-5-minutes")
    ]
    executor = await enter(runtime.store, "shown", flow_run_id=worked_on.id)
    await client.set_flow_run_state(worked_on.id, Running(), force=True)
    await client.set_flow_run_state(starting.id, Pending(), force=True)
    await client.set_flow_run_state(other.id, Running(), force=True)
    await runtime.store.beat(executor)
    await one_pass()
    states = [(await client.read_flow_run(run.id)).state_type for run in (worked_on, starting, other)]
    assert states[1:] == [StateType.PENDING, StateType.RUNNING]
    # Its executor fell silent meanwhile, which is another reason.
    assert states[0] in (StateType.RUNNING, StateType.CRASHED)


async def test_a_slow_queue_is_told_once_and_shown_in_each_pass(
    runtime: OpenRuntime, records: Records, owner: psycopg.Connection
) -> None:
    with job_tenant_scope("acme"):
        await runtime.store.register_idempotent([new_job(job_type="GREET") for _ in range(3)])
    owner.execute("UPDATE job_history SET run_at = now() - interval '1 hour'")
    for _ in range(2):
        text = (await records.artifacts(await one_pass()))["on-duty"]
        assert "**Queue work is slow**: 3 jobs wait in it, the oldest for 1:00:" in text
    told = owner.execute("SELECT payload FROM job_events WHERE event = 'jobs.queue.stalled'").fetchall()
    assert [(payload["queue"], payload["pending"]) for (payload,) in told] == [("work", 3)]


async def test_a_queue_is_paused_and_resumed_by_form(runtime: OpenRuntime) -> None:
    assert await pause_queue("shown") == "queue shown is paused: what waits, waits"
    [paused] = await runtime.store.paused()
    assert (paused.kind, paused.name, paused.by) == ("queue", "shown", "prefect")
    assert await pause_queue("shown", action="resume") == "queue shown goes on"
    assert await pause_queue("shown", action="resume") == "queue shown was not paused"
    assert await pause_queue("GREET", kind="type") == "type GREET is paused: what waits, waits"
    with pytest.raises(UnknownQueue, match="did you mean"):
        await pause_queue("show")
