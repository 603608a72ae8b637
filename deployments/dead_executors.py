"""After a power cut the executors of this machine are dead for certain: settle their jobs without waiting.

Elsewhere an executor is judged by its silence, which takes minutes. Here its process is looked for, so this
is for a database that only this machine uses.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psutil

from durable_jobs.loading import load_registry
from durable_jobs.reconciling import Reconciler, ReconcileReport
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import ExecutorView

# An executor says that it started after its process did; clocks may differ by this much.
CLOCK_SKEW = timedelta(seconds=2)


async def settle_dead_executors(settings: Settings) -> ReconcileReport:
    """Settle what executors hold whose processes are gone; jobs of others stay as they are.

    Raises:
        DurableJobsError: the store is away or cannot settle them.
    """
    async with PgJobsStore.from_settings(settings) as store:
        dead = [view.executor.executor_id for view in await store.executors() if not is_alive(view)]
        if not dead:
            return ReconcileReport()
        return await Reconciler(store, load_registry(settings.modules), settings, dead=dead).run()


def is_alive(view: ExecutorView) -> bool:
    """Tell whether the process of an executor of this machine lives, whatever the machine was called then."""
    try:
        began = datetime.fromtimestamp(psutil.Process(view.executor.pid).create_time(), UTC)
    except psutil.NoSuchProcess:
        return False
    # A younger process has only inherited the number.
    return began <= view.started_at + CLOCK_SKEW
