"""When a person's word about an effect comes too early or too late; the same for every store."""

from __future__ import annotations

from uuid import UUID

from durable_jobs.errors import NotAllowed


def require_settled(answer: str, effect_id: UUID, job_id: UUID, *, happened: bool) -> None:
    """Refuse a word about an effect that an execution is at ("held"), or that exists ("done").

    Raises:
        NotAllowed: saying what to do instead.
    """
    if answer == "held":
        raise NotAllowed(f"effect {effect_id} is being made by job {job_id}: wait until that job has ended")
    if answer == "done" and not happened:
        raise NotAllowed(f"effect {effect_id} is CONFIRMED: job {job_id} has made it, so it is not released")
