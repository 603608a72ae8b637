"""Brings jobs and their flow runs in line where one of them changed without the other.

A dead letter whose run somebody started again in Prefect, and which then succeeded, must not be retried as
well: the job is CANCELLED. The run of a job that was cancelled while nobody executed it is cancelled too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterIdempotencyKey,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, StateType

from durable_jobs.errors import JobNotFound, NotAllowed
from durable_jobs.flow_runs.keeping import run_key
from durable_jobs.flow_runs.store import RunJob
from durable_jobs.states import JobState
from durable_jobs.tasks.run_calling_off import call_off
from durable_jobs.tasks.runs import PAGE
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope

LATELY = timedelta(hours=1)
SUCCEEDED_AGAIN = "prefect: its flow run succeeded when it was run again"


class Agreement(NamedTuple):
    """What was brought in line."""

    succeeded_meanwhile: int = 0
    runs_cancelled: int = 0

    def counts(self) -> dict[str, Any]:
        """Return the figures, for people and logs."""
        return {"succeededMeanwhile": self.succeeded_meanwhile, "runsCancelled": self.runs_cancelled}


@task(cache_policy=NO_CACHE, persist_result=False)
async def agree_with_prefect(runtime: OpenRuntime) -> Agreement:
    """Cancel dead letters whose runs succeeded after all, and runs whose jobs were cancelled."""
    jobs = await runtime.store.jobs_of_runs(cancelled_since=datetime.now(UTC) - LATELY)
    async with get_client() as client:
        return Agreement(
            await _cancel_needless(client, runtime, [job for job in jobs if job.state is JobState.FAILED]),
            await _cancel_runs(client, [job for job in jobs if job.state is JobState.CANCELLED]),
        )


async def _cancel_needless(client: PrefectClient, runtime: OpenRuntime, letters: Sequence[RunJob]) -> int:
    by_run = {job.flow_run_id: job for job in letters if job.flow_run_id is not None}
    done = 0
    for run in await _runs(client, list(by_run), [StateType.COMPLETED]):
        done += await _cancel(runtime, by_run[run.id])
    return done


async def _cancel(runtime: OpenRuntime, job: RunJob) -> bool:
    try:
        with job_tenant_scope(job.tenant_id):
            await runtime.store.cancel(job.job_id, by=SUCCEEDED_AGAIN)
    except (JobNotFound, NotAllowed):
        # Retried meanwhile: the retry finds that the run succeeded.
        return False
    return True


async def _cancel_runs(client: PrefectClient, jobs: Sequence[RunJob]) -> int:
    going_on = FlowRunFilterStateType(not_any_=[*TERMINAL_STATES, StateType.CANCELLING])
    cancelled = 0
    for part in _parts([run_key(job.job_id) for job in jobs]):
        wanted = FlowRunFilter(
            idempotency_key=FlowRunFilterIdempotencyKey(any_=part), state=FlowRunFilterState(type=going_on)
        )
        for run in await client.read_flow_runs(flow_run_filter=wanted, limit=PAGE):
            cancelled += await call_off(run.id, "its job was cancelled")
    return cancelled


async def _runs(client: PrefectClient, ids: Sequence[UUID], types: Sequence[StateType]) -> list[FlowRun]:
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))
    found: list[FlowRun] = []
    for part in _parts(ids):
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(part)), state=state)
        found += await client.read_flow_runs(flow_run_filter=wanted, limit=PAGE)
    return found


def _parts(whole: Sequence[Any]) -> list[Any]:
    return [whole[start : start + PAGE] for start in range(0, len(whole), PAGE)]
