"""`effects list`, `confirm`, `release`: what was made once, and a person's word about what is not known.

Ids are read before anything is done. An effect that says no does not keep the others from their turn; the
exit code is that of the worst answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer

from durable_jobs.cli import arguments
from durable_jobs.cli.arguments import TENANT, Json, Tenant
from durable_jobs.cli.output import answer, answer_json, say, table
from durable_jobs.cli.running import user, with_store
from durable_jobs.effects.store import EffectState, EffectView
from durable_jobs.errors import BadInput, DurableJobsError, StoreUnavailable
from durable_jobs.moments import for_people, for_programs
from durable_jobs.runtime import Runtime
from durable_jobs.stores.postgres import PgJobsStore

MAX_PAGE = 1_000
_HEADS = ("EFFECT ID", "TYPE", "KEY", "STATE", "JOB ID", "SINCE")

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of the effects.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    effects = typer.Typer(
        help="List effects that jobs made once; confirm or release one that is unknown.\n\n"
        "Example: durable-jobs effects list --state UNKNOWN",
        no_args_is_help=True,
    )
    effects.command("list")(list_effects)
    effects.command("confirm")(confirm)
    effects.command("release")(release)
    app.add_typer(effects, name="effects")


def list_effects(
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only RESERVED, CONFIRMED or UNKNOWN; repeat it for several.", show_default=False),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only those of this job's chain.", metavar="ID")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE, help="How many at most.")] = 50,
    tenant: Tenant = TENANT,
    as_json: Json = False,
) -> None:
    """List effects, newest first.

    UNKNOWN ones were begun by an execution that ended without a word: they may have happened or not.

    Example: durable-jobs effects list --state UNKNOWN
    """
    states = _states(state or [])
    job_id = None if job is None else arguments.job_id(job)

    async def work(_: Runtime, store: PgJobsStore) -> list[EffectView]:
        return await store.effects(states=states, job_id=job_id, limit=limit)

    views = with_store(tenant, work)
    if as_json:
        answer_json({"effects": [as_document(view) for view in views]})
    elif views:
        answer(table(_HEADS, [_row(view) for view in views]))
    else:
        say("no effects")


def confirm(effect_ids: Ids, tenant: Tenant = TENANT, as_json: Json = False) -> None:
    """Say that unknown effects happened: whoever wants to make them skips them.

    Then resubmit the job that stopped at it.

    Example: durable-jobs effects confirm 0b2a4f0e-8f6e-4c0e-9d38-6f6e3b1b8d11
    """
    _settle(effect_ids, tenant, happened=True, as_json=as_json)


def release(effect_ids: Ids, tenant: Tenant = TENANT, as_json: Json = False) -> None:
    """Say that unknown effects did not happen: they are forgotten, and the next job makes them.

    Then resubmit the job that stopped at it.

    Example: durable-jobs effects release 0b2a4f0e-8f6e-4c0e-9d38-6f6e3b1b8d11
    """
    _settle(effect_ids, tenant, happened=False, as_json=as_json)


def as_document(view: EffectView) -> dict[str, Any]:
    """Return an effect as JSON shows it."""
    return {
        "effectId": str(view.effect_id),
        "key": view.key,
        "effectType": view.effect_type,
        "state": str(view.state),
        "jobId": str(view.job_id),
        "rootJobId": str(view.root_job_id),
        "createdAt": for_programs(view.created_at),
        "confirmedAt": None if view.confirmed_at is None else for_programs(view.confirmed_at),
        "result": view.result,
    }


def _settle(effect_ids: Sequence[str], tenant: str, *, happened: bool, as_json: bool) -> None:
    wanted = list(dict.fromkeys(_effect_id(text) for text in effect_ids))

    async def work(_: Runtime, store: PgJobsStore) -> int:
        worst = 0
        for n, effect_id in enumerate(wanted):
            try:
                view = await store.settle_effect(effect_id, happened=happened, by=user())
            except StoreUnavailable as error:
                left = " ".join(str(other) for other in wanted[n:])
                raise StoreUnavailable(f"{error}\nNot done, or not known to be done: {left}") from error
            except DurableJobsError as error:
                say(f"error: {error}")
                worst = max(worst, error.exit_code)
                continue
            if as_json:
                answer_json(as_document(view) | {"released": not happened}, indent=None)
            else:
                answer(f"{effect_id} {'CONFIRMED' if happened else 'released'}")
        return worst

    if worst := with_store(tenant, work):
        raise typer.Exit(worst)


def _effect_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise BadInput(f"effect id {text!r} is not a UUID; `durable-jobs effects list` shows ids") from error


def _states(names: Sequence[str]) -> list[EffectState]:
    for name in names:
        if name.upper() not in set(EffectState):
            raise BadInput(f"--state {name!r} is no state of an effect; states are {', '.join(EffectState)}")
    return [EffectState(name.upper()) for name in names]


def _row(view: EffectView) -> tuple[Any, ...]:
    since = for_people(view.created_at)
    return view.effect_id, view.effect_type, view.key, view.state, view.job_id, since
