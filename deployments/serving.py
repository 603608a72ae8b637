"""The program that serves every deployment of prefect.yaml on this machine: `python -m` this module.

What runs by itself (the shift, the crons) and what people ask for have a runner each, so that many requests
cannot keep a cron waiting. A stop leaves the schedules active: they go on with the next start.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import anyio
import httpx
from prefect import get_client
from prefect.exceptions import PrefectException
from prefect.logging import get_logger
from prefect.runner import Runner
from prefect.settings import get_current_settings

from durable_jobs.deployments.aftermath import close_dead_runs
from durable_jobs.deployments.automations import apply_automations
from durable_jobs.deployments.block_types import offer_block_types
from durable_jobs.deployments.database_block import save_database_block
from durable_jobs.deployments.dead_executors import settle_dead_executors
from durable_jobs.deployments.forms import offer_job_types
from durable_jobs.deployments.manifest import is_scheduled, read_manifest
from durable_jobs.deployments.served import served
from durable_jobs.errors import BadInput
from durable_jobs.loading import load_registry
from durable_jobs.settings import Settings
from durable_jobs.tasks.lost_runs import drop_missed_runs

LOOK_FOR_BLOCK = timedelta(seconds=10)
POLL = timedelta(seconds=2)
REQUESTED_AT_ONCE = 16
STANDING_SHIFT = "execute-jobs/shift"

logger = get_logger("durable-jobs.serving")


async def serve(*, after_outage: bool, server_is_ours: bool, start_shift: bool) -> None:
    """Apply the deployments and serve them until SIGTERM.

    Args:
        after_outage: clear up after killed processes first; only true when none of them lives.
        server_is_ours: only this machine uses the database: settle what dead executors of it hold.
        start_shift: start a shift at once instead of waiting for its cron.
    """
    await _wait_for_server()
    entries = read_manifest()
    scheduled = Runner(
        name="scheduled",
        query_seconds=POLL.total_seconds(),
        prefetch_seconds=0,
        limit=None,
        pause_on_shutdown=False,
    )
    requested = Runner(
        name="requested",
        query_seconds=POLL.total_seconds(),
        prefetch_seconds=0,
        limit=REQUESTED_AT_ONCE,
        pause_on_shutdown=False,
    )
    ids = await _add(scheduled, [entry for entry in entries if is_scheduled(entry)])
    ids |= await _add(requested, [entry for entry in entries if not is_scheduled(entry)])
    settings = Settings.load()
    await _prepare(settings, list(ids.values()))
    if after_outage:
        await _clear_up(list(ids.values()))
    if server_is_ours:
        await _settle(settings)
    if start_shift and STANDING_SHIFT in ids:
        await _start_shift(ids[STANDING_SHIFT])
    notifying = asyncio.create_task(_notify(settings.notification_block))
    try:
        await _run([scheduled, requested])
    finally:
        notifying.cancel()


async def _wait_for_server() -> None:
    async with get_client() as client:
        while await client.api_healthcheck() is not None:  # noqa: ASYNC110 -- another process
            await anyio.sleep(0.3)


async def _add(runner: Runner, entries: Iterable[dict[str, Any]]) -> dict[str, UUID]:
    added: dict[str, UUID] = {}
    for entry in entries:
        deployment = served(entry)
        added[deployment.full_name] = await runner.aadd_deployment(deployment)
        logger.info("Serving %s", deployment.full_name)
    return added


async def _prepare(settings: Settings, deployment_ids: Sequence[UUID]) -> None:
    await save_database_block(settings.require_database_url())
    await offer_block_types()
    async with get_client() as client:
        for deployment_id in deployment_ids:
            await offer_job_types(client, deployment_id, load_registry(settings.modules).job_types)
        await apply_automations(client)


async def _notify(named: str | None) -> None:
    """Have the notification block told of CRITICAL events, as soon as somebody has made it."""
    waiting = False
    while named is not None:
        try:
            async with get_client() as client:
                await apply_automations(client, notification_block=named)
        except (BadInput, httpx.HTTPError, PrefectException) as error:
            if not waiting:
                logger.warning("Nobody is told of CRITICAL events yet: %s", error)
            waiting = True
            await anyio.sleep(LOOK_FOR_BLOCK.total_seconds())
        else:
            logger.info("CRITICAL events are told to %s", named)
            return


async def _clear_up(deployment_ids: Sequence[UUID]) -> None:
    async with get_client() as client:
        dead = await close_dead_runs(client, deployment_ids)
        missed = await drop_missed_runs(client, deployment_ids)
    if dead or missed:
        logger.info("After an outage: %d dead flow runs closed, %d missed runs dropped", dead, missed)


async def _settle(settings: Settings) -> None:
    report = await settle_dead_executors(settings)
    if report.removed:
        logger.info(
            "After a crash: %d dead executors removed, %d of their jobs settled",
            len(report.removed),
            sum(report.settled.values()),
        )


async def _start_shift(deployment_id: UUID) -> None:
    async with get_client() as client:
        await client.create_flow_run_from_deployment(deployment_id, tags=["started-by-up"])


async def _run(runners: list[Runner]) -> None:
    async with anyio.create_task_group() as group:
        for runner in runners:
            group.start_soon(runner.start)
        while not all(runner.started for runner in runners):  # noqa: ASYNC110 -- Prefect has no event for it
            await anyio.sleep(0.05)
        # After the start of both: each one installs a handler that stops only itself.
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        await stopping.wait()
        for runner in runners:
            group.start_soon(runner.astop)


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--after-outage", action="store_true")
    parser.add_argument("--server-is-ours", action="store_true")
    parser.add_argument("--start-shift", action="store_true")
    arguments = parser.parse_args()
    # A runner leaves the folder `runner_storage` behind where temporary files go.
    tempfile.tempdir = str(get_current_settings().home)
    asyncio.run(serve(**vars(arguments)))


if __name__ == "__main__":
    main()
