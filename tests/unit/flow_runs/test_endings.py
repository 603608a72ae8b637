"""What the end of a run means, and what people are told of it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from durable_jobs.flow_runs.endings import End, EndedRun, end_of, reason_for
from durable_jobs.flow_runs.hiding import without_values


def run(state_type: str, message: str | None = None, ours: str | None = None, **parameters: Any) -> EndedRun:
    return EndedRun(uuid4(), state_type, state_type.title(), message, parameters, ours)


@pytest.mark.parametrize(
    ("ended", "means"),
    [
        (run("COMPLETED"), End.WELL),
        (run("FAILED", "no"), End.FAILURE),
        (run("CRASHED", None), End.FAILURE),
        (run("CANCELLED", None), End.CALLED_OFF),
        (run("CANCELLED", "Flow run was cancelled successfully."), End.CALLED_OFF),
        (run("CANCELLED", "Runner is shutting down."), End.FAILURE),
        (run("CANCELLED", "Deployment concurrency limit reached."), End.REFUSED),
        (run("CANCELLED", "durable-jobs: timed out after PT1M"), End.FAILURE),
        (run("CANCELLED", "Flow run was cancelled.", "durable-jobs: timed out after PT1M"), End.FAILURE),
    ],
)
def test_only_a_persons_cancel_calls_a_run_off(ended: EndedRun, means: End) -> None:
    assert end_of(ended) is means


def test_the_reason_names_the_state_and_the_message() -> None:
    assert reason_for(run("FAILED", "ValueError: no")) == "Failed: ValueError: no"
    assert reason_for(run("CRASHED")) == "Crashed: no message"
    assert reason_for(run("CANCELLED", "x", "durable-jobs: timed out")) == "Cancelled: timed out"


@pytest.mark.parametrize(
    ("text", "parameters", "shown"),
    [
        ("bad word hunter22", {"word": "hunter22"}, "bad word ***"),
        ("'it\\'s' in {'a': ['deep-one']}", {"x": {"y": ["deep-one"]}}, "'it\\'s' in {'a': ['***']}"),
        ("line\\nbreak", {"x": "line\nbreak"}, "***"),
        ("took 12 of 123456", {"n": 12, "m": 123456}, "took 12 of ***"),
        ("longer wins: secretly", {"a": "secret", "b": "secretly"}, "longer wins: ***"),
        ("True is not False", {"a": True}, "True is not False"),
        (
            "n: bad [type=int_parsing, input_value='tr0ub...4dor', input_type=str]",
            {"n": "tr0ub4dor"},
            "n: bad [type=int_parsing, input_value=***, input_type=str]",
        ),
    ],
)
def test_no_value_of_a_parameter_is_told(text: str, parameters: dict[str, Any], shown: str) -> None:
    assert without_values(text, parameters) == shown
