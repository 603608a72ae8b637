"""Time comes from the database alone: a program whose clock is wrong changes nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from durable_jobs.stores import postgres
from durable_jobs.stores.postgres import PgJobsStore
from tests.support.probes import PgProbe
from tests.support.processes import running, start, told

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
OFF = timedelta(minutes=15)


@pytest.mark.parametrize("minutes", [-15, 15])
def test_a_program_with_a_wrong_clock(
    pg_store: PgJobsStore, database_url: str, owner_connection: psycopg.Connection, minutes: int
) -> None:
    if FAKETIME is None:
        pytest.skip("libfaketime is not installed (apt-get install faketime)")
    environment = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME": f"{minutes:+}m",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    program = start("tests.integration.store.skewed_program", database_url, environment=environment)
    with running([program]):
        [answer] = told(program)
    off = datetime.fromisoformat(answer["clock"]) - datetime.now(UTC)
    assert abs(off) > OFF - timedelta(minutes=1), "the clock was not wrong"
    del answer["clock"]
    expected = {"claimed": [0, 1, 2], "silent": 0, "overdue": 0, "listed": 8, "waiting": 5}
    assert answer == expected
    now = datetime.now(UTC)
    for row in PgProbe(owner_connection).jobs():
        times = [value for name, value in row.items() if name.endswith("_at") and name != "deadline_at"]
        assert all(abs(now - value) < timedelta(minutes=2) for value in times if value is not None)
        if row["deadline_at"] is not None:
            assert row["deadline_at"] - row["started_at"] == row["timeout"]


def test_the_store_never_asks_for_the_programs_time() -> None:
    folder = Path(postgres.__file__).parent
    asks = re.compile(r"datetime\.now|time\.time\(|utcnow|date\.today")
    assert [file.name for file in folder.glob("*.py") if asks.search(file.read_text())] == []
