"""How long history is kept, and the floor under it: a slip of the hand must not delete yesterday's jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from durable_jobs.errors import RetentionTooShort
from durable_jobs.stores.retention import Limits, RetentionStore

JOBS = timedelta(days=30)
EFFECTS = timedelta(days=90)
REDIS = timedelta(days=7)
LONGEST = timedelta(days=36_500)


class Periods(NamedTuple):
    """How long jobs and events, effects, and finished jobs in Redis are kept."""

    jobs: timedelta = JOBS
    effects: timedelta = EFFECTS
    redis: timedelta = REDIS

    def require_over(self, floor: timedelta) -> Periods:
        """Return the periods.

        Raises:
            RetentionTooShort: one is under the floor, or longer than a hundred years.
        """
        for name, period in self._asdict().items():
            if period < floor:
                raise RetentionTooShort(
                    f"the retention of {name} is {period}, under the floor of {floor}: keep them longer, or lower"
                    " DURABLE_JOBS_MIN_RETENTION where you mean it"
                )
            if period > LONGEST:
                raise RetentionTooShort(
                    f"the retention of {name} is {period}: the longest is {LONGEST.days} days; to keep everything,"
                    " pause the deployment jobs-purge/nightly"
                )
        return self

    async def limits(self, store: RetentionStore, floor: timedelta, *, now: datetime | None = None) -> Limits:
        """Return what is due now by the store's clock.

        Raises:
            RetentionTooShort: a period is under the floor.
            StoreUnavailable: the store does not answer.
        """
        self.require_over(floor)
        return await store.retention_limits(self.jobs, self.effects, now=now)
