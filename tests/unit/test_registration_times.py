"""When a job is to run is kept in UTC, whatever zone it was asked in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import BaseModel

from durable_jobs import JobContext, job_type
from durable_jobs.errors import BadInput
from durable_jobs.job_types import MARK
from durable_jobs.registration import prepare
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings


class Nothing(BaseModel):
    pass


@job_type("REST")
async def rest(request: Nothing, context: JobContext) -> None:
    """Do nothing."""


REGISTRY = Registry.of([getattr(rest, MARK)])
PARIS = timezone(timedelta(hours=2))


def run_at(moment: datetime) -> datetime | None:
    return prepare(REGISTRY, Settings(_env_file=None), "REST", {}, run_at=moment).run_at


def test_another_zone_becomes_utc() -> None:
    told = run_at(datetime(2030, 1, 31, 10, tzinfo=PARIS))
    assert told is not None
    assert told.isoformat() == "2030-01-31T08:00:00+00:00"
    assert told.tzinfo is UTC


@pytest.mark.parametrize("moment", [datetime(2030, 1, 31, 10), datetime.min.replace(tzinfo=PARIS)])  # noqa: DTZ001 -- it is what is refused
def test_what_is_no_moment_is_refused(moment: datetime) -> None:
    with pytest.raises(BadInput, match=r"^run_at "):
        run_at(moment)
