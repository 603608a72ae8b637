"""Texts and results that came from job code, made fit to be stored; a failure is always recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

MAX_REASON = 4_000
"""Characters of `failed_reason`."""


def reason_of(error: BaseException) -> str:
    """Return `ExceptionType: message`, fit to be stored."""
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 -- a message of job code may fail in any way
        message = f"(its message cannot be read: {type(broken).__name__})"
    name = type(error).__name__
    return clean(f"{name}: {message}" if message else name)


def clean(text: str, limit: int = MAX_REASON) -> str:
    """Return text that Postgres takes: no NUL, valid Unicode, at most `limit` characters."""
    shortened = text[:limit]
    cleaned = shortened.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    cleaned = cleaned.encode("utf-8", "replace").decode()
    if len(text) > limit:
        tail = f" ... ({len(text):,} characters)"
        cleaned = cleaned[: limit - len(tail)] + tail
    return cleaned


def storable_json(value: Any) -> str:
    """Return JSON that jsonb takes: no NUL, valid Unicode, and null for a number that JSON does not know."""
    return json.dumps(_storable(value), ensure_ascii=False)


class Skipped(NamedTuple):
    """Return it from a processor: there was nothing left to do, because the effect already exists."""

    reason: str
    original_job_id: Any = None


def result_text(value: Any, *, max_bytes: int) -> str:
    """Return the JSON stored as a job's result; over the limit it says so instead of failing the job.

    A value that is no JSON is replaced by its representation: the work was done, so the job
    succeeded, whatever became of the description.
    """
    if isinstance(value, Skipped):
        document = {"status": "SKIPPED", "value": {"reason": clean(str(value.reason))}}
        if value.original_job_id is not None:
            document["value"]["originalJobId"] = str(value.original_job_id)  # type: ignore[index]
        return json.dumps(document)
    if value is None:
        return '{"status":"OK","value":null}'
    text = _json(value)
    if len(text.encode("utf-8", "replace")) > max_bytes:
        return '{"status":"OK","truncated":true}'
    return f'{{"status":"OK","value":{text}}}'


def _json(value: Any) -> str:
    try:
        tree = to_jsonable_python(value, by_alias=True)
        text = json.dumps(tree, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, TypeError, RecursionError):
        return json.dumps(clean(_shown(value)))
    # jsonb has no NUL; in a result it is replaced, since the work is done.
    return storable_json(tree) if "\\u0000" in text else text


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as broken:  # noqa: BLE001 -- a representation of job code may fail in any way
        return f"({type(value).__name__}, cannot be shown: {type(broken).__name__})"


def _storable(node: Any) -> Any:
    if isinstance(node, str):
        return node.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(node, float):
        return node if math.isfinite(node) else None
    if isinstance(node, Mapping):
        return {_storable(k): _storable(v) for k, v in node.items()}
    if isinstance(node, (list, tuple)):
        return [_storable(v) for v in node]
    return node
