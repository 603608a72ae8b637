"""Shifts relieve each other, share the bounds of queues, and live through outages of the database."""

from __future__ import annotations

import asyncio
import random
import signal
from uuid import UUID

from tests.integration.executor.shifts import LONG, Duty
from tests.support.eventually import eventually


def on_duty(duty: Duty) -> int:
    row = duty.owner.execute(
        "SELECT count(*) FROM job_executors WHERE in_crew AND NOT draining"
        " AND last_seen_at > now() - interval '3 seconds'"
    ).fetchone()
    return int(row[0]) if row else 0


async def test_five_generations_leave_no_moment_without_a_shift_and_no_job_twice(duty: Duty) -> None:
    shift = await duty.start()
    least = [1]
    submitted: list[UUID] = []

    async def watch() -> None:
        while True:
            least.append(on_duty(duty))
            submitted.extend(await duty.submit("ONCE", seconds=0.05))
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    for _ in range(5):
        successor = await duty.start()
        assert (await shift.ended())["because"] == "relieved"
        shift = successor
    watching.cancel()
    assert min(least) >= 1
    await duty.until(submitted, "SUCCEEDED")
    assert set(duty.traces().values()) == {1}


async def test_a_shift_with_a_long_job_is_relieved_at_once_and_finishes_it(duty: Duty) -> None:
    first = await duty.start()
    [long] = await duty.submit("ONCE", seconds=4)
    await eventually(lambda: duty.traces()[long], LONG)
    second = await duty.start()
    await eventually(lambda: duty.executor_of(second), LONG)
    [next_job] = await duty.submit("ONCE")
    await duty.until([next_job], "SUCCEEDED")
    assert first.is_running
    assert (await first.ended())["because"] == "relieved"
    assert duty.states([long]) == {"SUCCEEDED": 1}


async def test_an_until_empty_run_relieves_nobody(duty: Duty) -> None:
    standing = await duty.start()
    await (await duty.start(until_empty=True)).ended()
    [job] = await duty.submit("ONCE")
    await duty.until([job], "SUCCEEDED")
    assert standing.is_running


async def test_a_bound_is_exact_while_shifts_start_drain_and_die(duty: Duty) -> None:
    jobs = await duty.submit("BOUNDED", 60, seconds=0.15)
    most = [0]

    async def sample() -> None:
        while True:
            # What is RUNNING and still executed by a live executor.
            row = duty.owner.execute(
                "SELECT count(*) FROM job_history j JOIN job_executors e USING (executor_id)"
                " WHERE j.state = 'RUNNING' AND j.queue = 'bounded'"
            ).fetchone()
            most.append(int(row[0]) if row else 0)
            await asyncio.sleep(0.01)

    sampling = asyncio.create_task(sample())
    reconciling = asyncio.create_task(duty.reconcile_on())
    shifts = [await duty.start(), await duty.start()]
    shifts[0].kill()
    shifts.append(await duty.start())
    shifts[1].send(signal.SIGTERM)

    async def all_done() -> bool:
        for lone in await duty.store.waiting_alone([], stale_after=LONG, limit=5):
            await (await duty.start(queues=[], only=["acme", str(lone.job_id)])).ended()
        return duty.states(jobs) == {"SUCCEEDED": 60}

    await eventually(all_done, LONG)
    sampling.cancel()
    reconciling.cancel()
    # A suspect runs alone, beside the bound.
    assert max(most) <= 5
    assert duty.counters_equal_the_table()


async def test_a_dead_executors_leases_come_back(duty: Duty) -> None:
    first = await duty.start()
    [job] = await duty.submit("NARROW", seconds=60)
    await eventually(lambda: duty.traces()[job], LONG)
    first.kill()
    await duty.start()
    [waiting] = await duty.submit("NARROW")
    await duty.reconcile_until_clear()
    await duty.until([waiting], "SUCCEEDED")
    assert duty.states([job]) == {"FAILED": 1}


async def test_cut_connections_lose_nothing_and_double_nothing(duty: Duty) -> None:
    await duty.start()
    jobs = await duty.submit("ONCE", 80, seconds=0.2)
    for _ in range(6):
        await asyncio.sleep(random.uniform(0.05, 0.2))
        duty.owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'durable-jobs'"
        )
    await duty.until(jobs, "SUCCEEDED")
    assert duty.traces() == dict.fromkeys(jobs, 1)
