"""`pause` and `resume`: hold a queue or a job type back. What waits, waits; nothing fails."""

from __future__ import annotations

import difflib
from collections.abc import Container, Mapping
from typing import Annotated

import typer

from durable_jobs.cli.arguments import TENANT, Json
from durable_jobs.cli.output import answer, answer_json
from durable_jobs.cli.where import Jobs, Kind, Names, with_jobs
from durable_jobs.errors import BadInput
from durable_jobs.moments import for_people, for_programs
from durable_jobs.stores.protocols import Paused

Name = Annotated[str, typer.Argument(metavar="NAME", help="A queue or a job type.")]
KindOption = Annotated[
    Kind | None, typer.Option("--kind", help="Which of the two, when a queue and a type share the name.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("pause")(pause)
    app.command("resume")(resume)


def pause(name: Name, kind: KindOption = None, as_json: Json = False) -> None:
    """Hold a queue or a job type back, for all tenants; running jobs go on.

    Example: durable-jobs pause archive
    """

    async def work(jobs: Jobs) -> Paused:
        return await jobs.pause(_declared(await jobs.names(), name, kind), name)

    paused = with_jobs(TENANT, work)
    if as_json:
        answer_json(as_document(paused))
    else:
        answer(f"{paused.kind} {paused.name} is paused since {for_people(paused.since)}")


def resume(name: Name, kind: KindOption = None, as_json: Json = False) -> None:
    """Let a paused queue or job type go on.

    Example: durable-jobs resume archive
    """

    async def work(jobs: Jobs) -> Kind:
        held = await jobs.paused()
        # What is paused and no longer declared can be resumed all the same.
        queues, types = ({p.name for p in held if p.kind == k} for k in ("queue", "type"))
        found = _which(name, kind, {"queue": queues, "type": types})
        found = found or _declared(await jobs.names(), name, kind)
        await jobs.resume(found, name)
        return found

    found = with_jobs(TENANT, work)
    if as_json:
        answer_json({"kind": found, "name": name, "paused": False})
    else:
        answer(f"{found} {name} goes on")


def as_document(paused: Paused) -> dict[str, object]:
    """Return what is paused as JSON shows it."""
    return {
        "kind": paused.kind,
        "name": paused.name,
        "paused": True,
        "since": for_programs(paused.since),
        "by": paused.by,
    }


def _declared(names: Names, name: str, kind: Kind | None) -> Kind:
    found = _which(name, kind, {"queue": names.queues, "type": names.types})
    if found is not None:
        return found
    known = {"queue": names.queues, "type": names.types, None: [*names.queues, *names.types]}[kind]
    what = {"queue": "no queue", "type": "no job type", None: "neither a queue nor a job type"}[kind]
    near = difflib.get_close_matches(name, sorted(known), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(known))}"
    raise BadInput(f"{name!r} is {what}; {hint}")


def _which(name: str, kind: Kind | None, known: Mapping[Kind, Container[str]]) -> Kind | None:
    """Return which of the two is meant, or None when no such name is known."""
    found = [k for k, names in known.items() if name in names and kind in (None, k)]
    if len(found) > 1:
        raise BadInput(f"{name!r} is a queue and a job type: add --kind queue or --kind type")
    return found[0] if found else None
