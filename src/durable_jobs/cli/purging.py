"""`purgeable` and `purge`: what is over its time, and having it go, as the nightly flow does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from durable_jobs.cli import arguments
from durable_jobs.cli.arguments import TENANT, Json
from durable_jobs.cli.output import answer, answer_json, say, table
from durable_jobs.cli.where import Jobs, PurgeRequest, with_jobs
from durable_jobs.errors import BadInput
from durable_jobs.retention.periods import JOBS
from durable_jobs.tenants import validated

_HEADS = ("TENANT", "TYPE", "STATE", "JOBS", "BYTES", "OLDEST", "YOUNGEST")

OlderThan = Annotated[
    str | None,
    typer.Option(
        help="How long jobs are kept after their end: 30d (the default), P14D, ...", show_default="30d"
    ),
]
EffectsOlderThan = Annotated[
    str | None, typer.Option(help="How long effects are kept at least.", show_default="90d")
]
RedisOlderThan = Annotated[
    str | None, typer.Option(help="How long finished BullMQ jobs are kept.", show_default="7d")
]
Tenants = Annotated[
    list[str] | None,
    typer.Option("--tenant", help="Only this tenant; repeat it for several. Without any: all."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("purgeable")(purgeable)
    app.command("purge")(purge)


def purgeable(
    older_than: OlderThan = None,
    effects_older_than: EffectsOlderThan = None,
    tenant: Tenants = None,
    as_json: Json = False,
) -> None:
    """Show what a purge would take now, by tenant, type and state, and how much room that is.

    Example: durable-jobs purgeable --older-than 14d
    """
    jobs_period = JOBS if older_than is None else arguments.duration("--older-than", older_than)
    effects = _given("--effects-older-than", effects_older_than)
    tenants = _named(tenant)

    async def work(jobs: Jobs) -> dict[str, Any]:
        return await jobs.purgeable(jobs_period, effects, tenants)

    _show(with_jobs(TENANT, work), as_json)


def purge(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    older_than: OlderThan = None,
    effects_older_than: EffectsOlderThan = None,
    redis_older_than: RedisOlderThan = None,
    redis_prefix: Annotated[
        str | None,
        typer.Option(help="BullMQ's prefix in Redis: pv:jobs (the default), ...", show_default="pv:jobs"),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(help="When to stop; the next purge goes on.", show_default="30m"),
    ] = None,
    tenant: Tenants = None,
    as_json: Json = False,
) -> None:
    """Purge what is over its time, and prove it, as jobs-purge/nightly does.

    Exit code 1 when something due is left or something else went.

    Example: durable-jobs purge --dry-run
    """
    if redis_prefix == "":
        raise BadInput("--redis-prefix '': name the prefix of the BullMQ queues, such as pv:jobs")
    request = PurgeRequest(
        dry_run,
        _given("--older-than", older_than),
        _given("--effects-older-than", effects_older_than),
        _given("--redis-older-than", redis_older_than),
        redis_prefix,
        _given("--time-budget", time_budget),
        _named(tenant),
    )

    async def work(jobs: Jobs) -> dict[str, Any]:
        return await jobs.purge(request)

    figures = with_jobs(TENANT, work)
    if as_json:
        answer_json(figures)
    else:
        answer(_sentence(figures))


def _given(option: str, text: str | None) -> timedelta | None:
    return None if text is None else arguments.duration(option, text)


def _named(tenants: Sequence[str] | None) -> list[str] | None:
    return [validated(tenant) for tenant in tenants] if tenants else None


def _show(figures: dict[str, Any], as_json: bool) -> None:
    if as_json:
        answer_json(figures)
        return
    rows = [
        (
            group["tenantId"],
            group["jobType"],
            group["state"],
            group["jobs"],
            group["bytes"],
            group["oldest"][:10],
            group["youngest"][:10],
        )
        for group in figures["groups"]
    ]
    answer(table(_HEADS, rows))
    say(
        f"{figures['jobs']} jobs ({figures['bytes']} bytes), {figures['effects']} effects and {figures['events']}"
        f" published events are due. Kept although old: {figures['keptWithChain']} jobs, because a job of their"
        " chain is not due."
    )


def _sentence(figures: dict[str, Any]) -> str:
    what = (
        f"{figures['jobs']} jobs ({figures['bytes']} bytes), {figures['effects']} effects, {figures['events']}"
        f" published events and {figures['redis']} jobs of Redis"
    )
    return f"nothing went; a purge would take {what}" if figures["dryRun"] else f"{what} went"
