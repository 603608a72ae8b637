"""Holds a queue or a job type back, for all tenants, and lets it go on. What waits, waits; nothing fails."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response

from durable_jobs.api.access import Access, AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Operator
from durable_jobs.api.models import PausedThing
from durable_jobs.api.problems import Refusal
from durable_jobs.errors import BadInput, NotAllowed
from durable_jobs.moments import for_programs
from durable_jobs.stores.protocols import Paused

router = APIRouter(tags=["operation"])

Kind = Literal["queue", "type"]


@router.post("/queues/{name}/pause", response_model=PausedThing)
async def pause_queue(name: str, caller: Operator, access: AppAccess) -> Response:
    """Hold a queue back; running jobs go on. Asking again changes nothing."""
    return await _pause("queue", name, caller.subject, access)


@router.post("/queues/{name}/resume", response_model=PausedThing)
async def resume_queue(name: str, caller: Operator, access: AppAccess) -> Response:
    """Let a paused queue go on; 400 when it is not paused."""
    return await _resume("queue", name, caller.subject, access)


@router.post("/types/{name}/pause", response_model=PausedThing)
async def pause_type(name: str, caller: Operator, access: AppAccess) -> Response:
    """Hold a job type back; running jobs go on. Asking again changes nothing."""
    return await _pause("type", name, caller.subject, access)


@router.post("/types/{name}/resume", response_model=PausedThing)
async def resume_type(name: str, caller: Operator, access: AppAccess) -> Response:
    """Let a paused job type go on; 400 when it is not paused."""
    return await _resume("type", name, caller.subject, access)


async def _pause(kind: Kind, name: str, by: str, access: Access) -> Response:
    _require_declared(kind, name, access)
    store = await access.store()
    await store.pause(kind, name, by=by)
    held = next((one for one in await store.paused() if (one.kind, one.name) == (kind, name)), None)
    if held is None:
        raise NotAllowed(f"{kind} {name!r} was resumed by somebody else meanwhile")
    return answer_json(paused_document(held))


async def _resume(kind: Kind, name: str, by: str, access: Access) -> Response:
    store = await access.store()
    # No name has a NUL, which Postgres could not even be asked for.
    if "\0" in name or not await store.resume(kind, name, by=by):
        _require_declared(kind, name, access)
        raise NotAllowed(f"{kind} {name!r} is not paused")
    return answer_json({"kind": kind, "name": name, "paused": False, "since": None, "by": None})


def paused_document(paused: Paused, *, told_by: bool = True) -> dict[str, object]:
    """Return what is paused as JSON shows it; by whom is for people on duty."""
    return {
        "kind": paused.kind,
        "name": paused.name,
        "paused": True,
        "since": for_programs(paused.since),
        "by": paused.by if told_by else None,
    }


def _require_declared(kind: Kind, name: str, access: Access) -> None:
    try:
        if kind == "queue":
            access.registry.queue(name)
        else:
            access.registry.job_type(name)
    except BadInput as error:
        raise Refusal(404, f"unknown-{kind}", str(error)) from error
