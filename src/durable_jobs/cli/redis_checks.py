"""`redis`: how the Redis servers are, as the flow `redis-health` sees them; nothing is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer

from durable_jobs.cli.arguments import Json
from durable_jobs.cli.output import answer, answer_json, say, table
from durable_jobs.errors import BadInput
from durable_jobs.redis_health import HealthReport, RedisTarget, examine
from durable_jobs.redis_health.target import NOTHING_TO_WATCH, target_of_settings
from durable_jobs.settings import Environment, Settings

BLOCKS = "durable_jobs.redis_targets"
_HEADS = ("CHECK", "OUTCOME", "SEVERITY", "WHY")

Load = Callable[[Sequence[str], Environment], Awaitable[list[RedisTarget]]]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("redis")(redis)


def redis(
    block: Annotated[
        list[str] | None,
        typer.Option(help="Name of a redis-target block; repeat it for several. Without any: the setting."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at Redis: connection, latency, TLS, certificate, AUTH, role, memory, writes, persistence.

    Looks at the Redis of DURABLE_JOBS_REDIS_URL. Exit code 1 when a check failed.

    Example: durable-jobs redis --json
    """
    reports = asyncio.run(_examine(block or [], Settings.load()))
    healthy = not any(report.failures for report in reports)
    if as_json:
        answer_json({"healthy": healthy, "targets": [report.as_json() for report in reports]})
    elif reports:
        answer("\n\n".join(_shown(report) for report in reports))
    else:
        say(NOTHING_TO_WATCH)
    if not healthy:
        raise typer.Exit(1)


async def _examine(blocks: Sequence[str], settings: Settings) -> list[HealthReport]:
    if blocks:
        targets = await _loader()(blocks, settings.environment)
    else:
        default = target_of_settings(settings)
        targets = [default] if default else []
    return await asyncio.gather(*(examine(target) for target in targets))


def _loader() -> Load:
    """What loads blocks; found by name, since it needs Prefect."""
    for point in entry_points(group=BLOCKS):
        load: Load = point.load()
        return load
    raise BadInput(f"--block: nothing here loads blocks (no entry point {BLOCKS}); install durable-jobs anew")


def _shown(report: HealthReport) -> str:
    rows = [(result.check, result.outcome, result.severity or "", result.reason) for result in report.results]
    return f"{report.target}  {report.endpoint}  {report.environment}\n{table(_HEADS, rows)}"
