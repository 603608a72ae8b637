"""When an unfinished flow run that no executor stands for is over."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from durable_jobs.tasks.lost_runs import LONGEST_RUN, LONGEST_START, is_lost

SILENCE = timedelta(minutes=2)
MOMENT = timedelta(seconds=10)


def run(state: StateType, age: timedelta) -> FlowRun:
    timestamp = datetime.now(UTC) - age
    return FlowRun(flow_id=uuid4(), state=State(type=state, timestamp=timestamp), state_type=state)


@pytest.mark.parametrize("flow", ["execute_jobs", "execute_job", "jobs_reconcile"])
def test_what_the_store_would_know_is_lost_after_a_silence(flow: str) -> None:
    assert is_lost(run(StateType.RUNNING, SILENCE + MOMENT), flow, SILENCE)
    assert not is_lost(run(StateType.RUNNING, SILENCE - MOMENT), flow, SILENCE)


@pytest.mark.parametrize("flow", ["jobs_purge", "redis_health", "submit_job", "a_later_flow"])
def test_any_other_flow_has_the_time_of_the_longest(flow: str) -> None:
    assert is_lost(run(StateType.RUNNING, LONGEST_RUN + MOMENT), flow, SILENCE)
    assert not is_lost(run(StateType.RUNNING, LONGEST_RUN - MOMENT), flow, SILENCE)


@pytest.mark.parametrize("state", [StateType.PENDING, StateType.CANCELLING])
def test_a_start_and_a_stop_have_their_time(state: StateType) -> None:
    assert is_lost(run(state, LONGEST_START + MOMENT), "execute_jobs", SILENCE)
    assert not is_lost(run(state, SILENCE + MOMENT), "execute_jobs", SILENCE)
