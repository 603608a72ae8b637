"""Reads what is typed: ids, times, cursors; what cannot be right is named with the way out."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from durable_jobs.errors import BadInput
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Cursor
from durable_jobs.tenants import DEFAULT_TENANT
from durable_jobs.written_times import Since as Since
from durable_jobs.written_times import aware_time as aware_time
from durable_jobs.written_times import duration as duration
from durable_jobs.written_times import since as since

Tenant = Annotated[str, typer.Option(help="In whose name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (camelCase).")]
TENANT = DEFAULT_TENANT


def job_id(text: str) -> UUID:
    """Read the id of a job.

    Raises:
        BadInput: it is not a UUID.
    """
    try:
        return UUID(text)
    except ValueError as error:
        raise BadInput(
            f"job id {text!r} is not a UUID, such as 0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55;"
            " `durable-jobs list` shows ids"
        ) from error


def states(names: list[str]) -> tuple[JobState, ...]:
    """Read states of jobs, in any case.

    Raises:
        BadInput: there is no such state.
    """
    known = {str(state) for state in JobState}
    for name in names:
        if name.upper() not in known:
            raise BadInput(f"--state {name!r} is no state of a job; states are {', '.join(JobState)}")
    return tuple(JobState(name.upper()) for name in names)


def write_cursor(cursor: Cursor | None) -> str | None:
    """Return where a page ends, as text without a meaning for people."""
    if cursor is None:
        return None
    text = json.dumps([cursor.created_at.isoformat(), str(cursor.job_id)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> Cursor | None:
    """Read what `write_cursor` wrote.

    Raises:
        BadInput: it did not come from there.
    """
    if text is None:
        return None
    try:
        created_at, job = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return Cursor(datetime.fromisoformat(created_at), UUID(job))
    except (ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise BadInput(f"--cursor {text!r} is not the nextCursor of an earlier page") from error
