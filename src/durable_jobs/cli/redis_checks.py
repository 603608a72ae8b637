"""`redis`: how the Redis servers are, as the flow `redis-health` sees them; nothing is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from durable_jobs.cli.arguments import Json
from durable_jobs.cli.output import answer, answer_json, say, table
from durable_jobs.cli.where import remote_url
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

    Looks at the Redis of DURABLE_JOBS_REDIS_URL; through an API, at the API's. Exit code 1 when a check failed.

    Example: durable-jobs redis --json
    """
    url = remote_url()
    targets = _of_this_process(block or []) if url is None else _of_the_api(url, block)
    healthy = all(target["healthy"] for target in targets)
    if as_json:
        answer_json({"healthy": healthy, "targets": targets})
    elif targets:
        answer("\n\n".join(_shown(target) for target in targets))
    else:
        say(NOTHING_TO_WATCH)
    if not healthy:
        raise typer.Exit(1)


def _of_the_api(url: str, blocks: Sequence[str] | None) -> list[dict[str, Any]]:
    if blocks:
        raise BadInput(
            "--block does not work through an API: leave it out, and the API's own Redis is looked at"
        )

    from durable_jobs.cli.jobs_behind_api import client_of  # httpx loads slowly

    async def ask() -> list[dict[str, Any]]:
        async with client_of(url) as client:
            return (await client.redis()).targets

    return asyncio.run(ask())


def _of_this_process(blocks: Sequence[str]) -> list[dict[str, Any]]:
    return [report.as_json() for report in asyncio.run(_examine(blocks, Settings.load()))]


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


def _shown(target: Mapping[str, Any]) -> str:
    rows = [(one["check"], one["outcome"], one["severity"] or "", one["reason"]) for one in target["checks"]]
    return f"{target['target']}  {target['endpoint']}  {target['environment']}\n{table(_HEADS, rows)}"
