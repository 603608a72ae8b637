"""The machine finds a fault of each kind when one is planted: in memory, and in the database's functions.

The search ends with the first finding, so its bound is generous: half of the faults are found within 25
examples, one in thirty only after 130, and where it looks depends on what else the process has imported.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis.errors import Flaky, FlakyFailure

from durable_jobs.jobs import Job, Outcome
from durable_jobs.sql import functions
from durable_jobs.states import JobState
from durable_jobs.stores.memory import InMemoryJobsStore
from durable_jobs.stores.memory.rows import Row
from durable_jobs.stores.protocols import Unwritten
from durable_jobs.stores.retention import Limits
from tests.property.test_life_of_a_job import attack
from tests.property.worlds import World, memory_world, pg_world
from tests.support.cluster import Urls

MOST_EXAMPLES = 2_000


def search(world: World) -> None:
    """Attack until something is found, and raise it."""
    try:
        attack(world, MOST_EXAMPLES, shrink=False)
    except Flaky as found:
        # Workers race in Postgres: the same steps need not end the same way when they are repeated.
        first = found.exceptions[0] if isinstance(found, FlakyFailure) else found.__context__
        raise first or found from found


class WithoutFence(InMemoryJobsStore):
    """Whoever comes may end a running job."""

    def _finish(self, outcome: Outcome, at: datetime) -> Unwritten | None:
        row = self.memory.jobs[outcome.job.job_id]
        token = row.claim_token if row.state is JobState.RUNNING else None
        held = outcome.job if token is None else outcome.job._replace(claim_token=token)
        return super()._finish(outcome._replace(job=held), at)


class CancelsWhatHasEnded(InMemoryJobsStore):
    """A job that succeeded can still be cancelled."""

    async def cancel(self, job_id: UUID, *, by: str | None = None, now: datetime | None = None) -> Job:
        row = self.memory.mine(job_id)
        if row.state is JobState.SUCCEEDED:
            row.state = JobState.CANCELLED
            return row.job()
        return await super().cancel(job_id, by=by, now=now)


class RetriesTwice(InMemoryJobsStore):
    """A job that was retried can be retried once more."""

    async def retry(self, job_id: UUID, **options: Any) -> Job:
        row = self.memory.mine(job_id)
        if row.state is JobState.RETRIED:
            row.state = JobState.FAILED
        return await super().retry(job_id, **options)


class NewestFirst(InMemoryJobsStore):
    """The youngest job is claimed before older ones."""

    def _waiting(self, queue: str) -> list[Row]:
        return super()._waiting(queue)[::-1]


class PurgesPartOfAChain(InMemoryJobsStore):
    """A job goes when it is due, whatever its retries are."""

    def _chain_is_due(self, root_job_id: UUID, limits: Limits) -> bool:
        return True


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("store", "found"),
    [
        (WithoutFence, "the fence did not hold"),
        (CancelsWhatHasEnded, "terminal row changed"),
        (RetriesTwice, "terminal row changed|two children|retry_child_id|RETRIED means one child|a refusal"),
        (NewestFirst, "wrong order"),
        (PurgesPartOfAChain, "wrongly listed|something else went"),
    ],
)
def test_a_fault_in_memory_is_found(store: type[InMemoryJobsStore], found: str) -> None:
    with memory_world(store) as world, pytest.raises(AssertionError, match=found):
        search(world)


PLANTS = {
    "fence dropped": (
        "finish_jobs",
        "AND h.claim_token = o.claim_token\n        FOR UPDATE",
        "\n        FOR UPDATE",
        "the fence did not hold",
    ),
    "terminal row changed": (
        "cancel_job",
        "IF v_job.state = 'PENDING' OR",
        "IF v_job.state IN ('PENDING', 'SUCCEEDED') OR",
        "terminal row changed",
    ),
    "two children": (
        "retry_job",
        "IF v_job.state = 'RETRIED' THEN",
        "v_job.state := CASE v_job.state WHEN 'RETRIED' THEN 'FAILED' ELSE v_job.state END; IF false THEN",
        "terminal row changed|two children",
    ),
    "wrong order": (
        "claim_jobs",
        "ORDER BY j.run_at, j.job_id LIMIT v_asked",
        "ORDER BY j.run_at DESC, j.job_id DESC LIMIT v_asked",
        "wrong order",
    ),
    "one tenant takes all": (
        "claim_jobs",
        "ceil(v_left::numeric / v_turns)",
        "v_left",
        "missed its turn",
    ),
    "room is not given back": (
        "cancel_job",
        "PERFORM release_pending(v_job.queue, ARRAY[v_job.pending_shard]);",
        "",
        "counters say",
    ),
    "a chain is purged in parts": (
        "due_jobs",
        "AND coalesce(retries.last_at < p_before, true) AS due",
        "AS due",
        "wrongly listed|something else went",
    ),
    "a change is not told": (
        "orphan_jobs",
        "FROM settled s\n        ), woken",
        "FROM settled s WHERE s.state = 'PENDING'\n        ), woken",
        "FAILED was told 0 times|CANCELLED was told 0 times",
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_in_the_database_is_found(plant: str, new_database: Callable[[], Urls]) -> None:
    function, right, wrong, found = PLANTS[plant]
    text = functions()[function]
    assert right in text, "the function no longer reads as the plant expects"
    urls = new_database()
    with psycopg.connect(urls.admin, autocommit=True) as owner:
        owner.execute(text.replace(right, wrong).encode())
        owner.execute("DROP INDEX job_history_one_child")
    with pg_world(urls) as world, pytest.raises(AssertionError, match=found):
        search(world)
