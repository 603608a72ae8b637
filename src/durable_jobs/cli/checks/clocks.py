"""How far apart are the clocks? Nothing depends on it, but logs and schedules are easier to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx

from durable_jobs.cli.checks.findings import Finding, ok, unknown, warning
from durable_jobs.stores.postgres.database import Database

TOLERATED = timedelta(seconds=5)
NAME = "clocks"
ADVICE = "run a time service (NTP) on every machine"


class Skew:
    """How far other clocks are from this machine's."""

    def __init__(self) -> None:
        """Nothing is compared yet."""
        self.found: dict[str, timedelta] = {}

    async def look_at_database(self, database: Database) -> datetime:
        """Compare with the database's clock and return its time.

        Raises:
            StoreUnavailable: it does not answer.
        """
        before = datetime.now(UTC)
        [row] = await database.fetch("SELECT clock_timestamp()", {})
        self.found["the database"] = _apart(row[0], before, datetime.now(UTC))
        moment: datetime = row[0]
        return moment

    async def look_at_prefect(self, client: httpx.AsyncClient) -> None:
        """Compare with the clock of the Prefect server, which tells whole seconds.

        Raises:
            httpx.HTTPError: it does not answer.
        """
        before = datetime.now(UTC)
        answer = await client.get("health")
        if told := answer.headers.get("date"):
            moment = parsedate_to_datetime(told)
            self.found["the Prefect server"] = _apart(
                moment, before.replace(microsecond=0), datetime.now(UTC)
            )

    def finding(self) -> Finding:
        """Return what was found."""
        if not self.found:
            return unknown(NAME, "neither the database nor Prefect could be asked", "see above")
        far = {who: skew for who, skew in self.found.items() if abs(skew) > TOLERATED}
        if far:
            told = ", ".join(
                f"{who} is {abs(skew).total_seconds():.0f} s {'ahead' if skew > timedelta(0) else 'behind'}"
                for who, skew in far.items()
            )
            return warning(NAME, f"by this machine's clock {told}", ADVICE)
        seconds = f"{TOLERATED.total_seconds():.0f} s"
        return ok(NAME, f"within {seconds} of this machine's: {', '.join(self.found)}")


def _apart(theirs: datetime, before: datetime, after: datetime) -> timedelta:
    """Return how far a clock is away, with the benefit of the doubt: it was read between the two."""
    if before <= theirs <= after:
        return timedelta(0)
    return theirs - after if theirs > after else theirs - before
