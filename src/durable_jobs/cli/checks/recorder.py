"""Does Prefect's task run recorder keep up with the jobs that a shift shows as task runs?

With its default settings a server records about 28 task runs a second and keeps the rest in memory.
"""

from __future__ import annotations

from typing import Any

import httpx

from durable_jobs.cli.checks.findings import Finding, ok, unknown, warning
from durable_jobs.settings import Settings

RECORDED_PER_SECOND = 28
BATCH = 200
PREFIX = "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_"
NAME = "task run recorder"


async def check_recorder(client: httpx.AsyncClient, settings: Settings) -> Finding:
    """Compare the server's recorder settings with what our shifts may show."""
    answer = await client.get("admin/settings")
    if answer.is_error:
        message = f"the server does not tell its settings (HTTP {answer.status_code})"
        return unknown(NAME, message, f"see to it that {PREFIX}BATCH_SIZE and READ_BATCH_SIZE are {BATCH}")
    recorder = answer.json().get("server", {}).get("services", {}).get("task_run_recorder", {})
    sizes: list[Any] = [recorder.get("batch_size"), recorder.get("read_batch_size")]
    if not all(isinstance(size, int) for size in sizes):
        message = "this version of the server has no batch sizes"
        return unknown(NAME, message, "show fewer: DURABLE_JOBS_VISIBLE_TASK_RUNS_PER_SECOND")
    shown = f"batches of {sizes[0]}, read by {sizes[1]}"
    rate = settings.visible_task_runs_per_second
    if min(sizes) > 1:
        return ok(NAME, shown)
    if rate <= RECORDED_PER_SECOND:
        return ok(NAME, f"{shown}; enough for one shift that shows {rate:g} task runs a second")
    return warning(
        NAME,
        f"{shown}: it records about {RECORDED_PER_SECOND} task runs a second, a shift may show {rate:g}",
        f"start the server with {PREFIX}BATCH_SIZE={BATCH} and {PREFIX}READ_BATCH_SIZE={BATCH}",
    )
