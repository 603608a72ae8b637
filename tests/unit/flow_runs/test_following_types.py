"""What only follows must be able to be found again; the built-in type can be submitted without Prefect."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from pydantic import BaseModel

from durable_jobs import JobContext, job_type
from durable_jobs.errors import InvalidDeclaration, InvalidPayload
from durable_jobs.flow_runs.job_type import NAME
from durable_jobs.flow_runs.payload import RunDeployment
from durable_jobs.loading import load_registry
from durable_jobs.registration import prepare
from durable_jobs.settings import Settings


class Nothing(BaseModel):
    """No fields."""


async def processor(request: Nothing, context: JobContext) -> None:
    """Do nothing."""


def plain(request: Nothing, context: JobContext) -> None:
    """Do nothing, in a thread."""


def test_a_type_that_follows_is_replayed_and_async() -> None:
    job_type("FOLLOWS", follows=True, on_orphan="replay")(processor)
    with pytest.raises(InvalidDeclaration, match="follows is set"):
        job_type("FOLLOWS", follows=True)(processor)
    with pytest.raises(InvalidDeclaration, match="follows is set"):
        job_type("FOLLOWS", follows=True, on_orphan="replay")(plain)


@pytest.mark.parametrize("name", ["nightly", "a/b/c", "/b", "a/"])
def test_a_deployments_name_has_two_parts(name: str) -> None:
    registry = load_registry(())
    with pytest.raises(InvalidPayload, match="FLOW/DEPLOYMENT"):
        prepare(registry, Settings(), NAME, {"deployment": name})


def test_the_backoff_is_the_requests() -> None:
    declared = load_registry(()).job_type(NAME)
    request = RunDeployment(deployment="a/b", retry_backoff=timedelta(minutes=5))
    assert declared.backoff_of(request) == timedelta(minutes=5)


def test_submitting_it_never_loads_prefect() -> None:
    program = (
        "import sys; from durable_jobs.loading import load_registry; from durable_jobs.registration import prepare;"
        "from durable_jobs.settings import Settings;"
        "prepare(load_registry(()), Settings(), 'PREFECT_FLOW_RUN', {'deployment': 'a/b'});"
        "assert not [m for m in sys.modules if m.partition('.')[0] == 'prefect']"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
