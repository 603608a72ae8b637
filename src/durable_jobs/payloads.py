"""A payload is stored as JSON and must come back as the same typed value, or it is refused.

The check is done at registration, by reading back what will be stored: equality is Python's `==` on
the validated model. What Postgres' jsonb changes on the way (exponents, NUL) is part of the check.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from durable_jobs.errors import InvalidPayload, PayloadTooLarge
from durable_jobs.job_types import JobType
from durable_jobs.set_order import in_order, may_hold_sets

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode

Data = BaseModel | Mapping[str, Any] | str | bytes
"""A request: the payload's model, a mapping, or JSON text."""


class StoredPayload(NamedTuple):
    """The JSON text that is stored, and the hash that tells equal requests."""

    text: str
    hash: str


def store(declared: JobType, data: Data, *, max_bytes: int, max_depth: int) -> StoredPayload:
    """Validate a request and turn it into what is stored.

    Raises:
        InvalidPayload: it does not fit the model, or would not come back equal; names the path.
        PayloadTooLarge: over `max_bytes` of JSON, or nested deeper than `max_depth`.
    """
    request = _validated(declared, data)
    tree = _dumped(declared, request)
    _refuse_depth(declared, tree, max_depth)
    text = _json(declared, tree)
    size = len(text)
    if size > max_bytes:
        raise PayloadTooLarge(
            f"payload of {declared.name} has {size:,} bytes of JSON, at most {max_bytes:,} are allowed"
            " (DURABLE_JOBS_MAX_PAYLOAD_BYTES); store the data elsewhere and submit a reference to it"
        )
    _refuse_change(declared, request, text)
    digest = hashlib.sha256(declared.name.encode() + b"\n" + text).hexdigest()
    return StoredPayload(text.decode(), digest)


def load(declared: JobType, text: str, version: int) -> BaseModel:
    """Read a stored payload, upgraded to the type's current version.

    Raises:
        InvalidPayload: it no longer fits, or is of a newer version than this program knows.
    """
    if version > declared.version:
        raise InvalidPayload(
            f"payload of {declared.name} has version {version}, this program knows {declared.version};"
            " update the program"
        )
    if version < declared.version and declared.upgrade is not None:
        try:
            text = json.dumps(declared.upgrade(json.loads(text), version))
        except Exception as error:
            raise InvalidPayload(
                f"payload of {declared.name} cannot be upgraded from version {version} to {declared.version}:"
                f" {type(error).__name__}: {error}"
            ) from error
    try:
        return _read_back(declared, text)
    except ValidationError as error:
        raise InvalidPayload(_explain(declared, error)) from error


def load_stored(declared: JobType, payload: Any, version: int) -> BaseModel:
    """Read a payload that the database's driver has already parsed; see `load`."""
    return load(declared, json.dumps(payload), version)


def _read_back(declared: JobType, text: str | bytes) -> BaseModel:
    """Read what was stored: by the names of the fields, whatever names a request uses."""
    return declared.payload_model.model_validate_json(text, by_alias=True, by_name=True)


def _validated(declared: JobType, data: Data) -> BaseModel:
    model = declared.payload_model
    if isinstance(data, model):
        return data
    if isinstance(data, BaseModel):
        raise InvalidPayload(
            f"payload of {declared.name} is a {type(data).__name__}, it takes {model.__name__} or a mapping"
        )
    try:
        if isinstance(data, (str, bytes)):
            return model.model_validate_json(data)
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidPayload(_explain(declared, error)) from error


def _dumped(declared: JobType, request: BaseModel) -> Any:
    try:
        # By the names of the fields, as `_read_back` takes them, whatever names a model's answers use.
        tree = request.model_dump(mode="json", by_alias=False, round_trip=True, warnings="error")
        return in_order(request, tree) if may_hold_sets(type(request)) else tree
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        path = _unwritable(request)
        raise InvalidPayload(
            f"payload of {declared.name} at {path} cannot be written as JSON: {error}"
        ) from error


def _unwritable(request: BaseModel) -> str:
    def bad(value: Any) -> bool:
        try:
            to_jsonable_python(value)
        except (PydanticSerializationError, ValueError, RecursionError):
            return True
        return False

    try:
        return _first(vars(request), bad) or "(root)"
    except RecursionError:
        return "(root)"


def _json(declared: JobType, tree: Any) -> bytes:
    try:
        encoded = _encode(tree).encode()
    except (ValueError, TypeError) as error:
        path = _first(tree, _not_json)
        raise InvalidPayload(f"payload of {declared.name} at {path or '(root)'}: {error}") from error
    if b"\\u0000" in encoded and (path := _first(tree, _has_nul)):
        raise InvalidPayload(
            f"payload of {declared.name} at {path}: text with a NUL character cannot be stored"
        )
    return encoded


def _refuse_depth(declared: JobType, tree: Any, max_depth: int) -> None:
    level = [tree] if isinstance(tree, (dict, list)) else []
    for _ in range(max_depth):
        level = [c for node in level for c in _children(node) if isinstance(c, (dict, list))]
        if not level:
            return
    if any(level):
        raise PayloadTooLarge(
            f"payload of {declared.name} is nested deeper than {max_depth} levels"
            " (DURABLE_JOBS_MAX_PAYLOAD_DEPTH)"
        )


def _refuse_change(declared: JobType, request: BaseModel, text: bytes) -> None:
    try:
        back = _read_back(declared, _as_jsonb_returns(text))
    except ValidationError as error:
        raise InvalidPayload(
            f"{_explain(declared, error)}; it was accepted but could not be read back from JSON"
        ) from error
    if back != request:
        path = _difference(request.model_dump(), back.model_dump()) or _difference(vars(request), vars(back))
        raise InvalidPayload(
            f"payload of {declared.name} at {path or '(root)'}: the value would not come back equal from JSON;"
            " give the field a type that says what it is (UUID, datetime, Decimal, set[int], bytes, ...)"
        )


def _as_jsonb_returns(text: bytes) -> bytes | str:
    """Write numbers with a large exponent as jsonb returns them: without it, so as integers."""
    if b"e+" not in text:
        return text
    tree = json.loads(text, parse_float=lambda s: int(Decimal(s)) if "e+" in s else float(s))
    return json.dumps(tree, ensure_ascii=False)


def _difference(one: Any, other: Any, path: str = "") -> str | None:
    """Return the path of the first place where the two differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(f"{path}.{k}".lstrip("."), one[k], other[k]) for k in one]
    elif isinstance(one, (list, tuple)) and type(one) is type(other) and len(one) == len(other):
        pairs = [(f"{path}[{n}]", a, b) for n, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else path
    return next((found for p, a, b in pairs if (found := _difference(a, b, p)) is not None), None)


def _children(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def _first(node: Any, bad: Callable[[Any], bool], path: str = "") -> str | None:
    """Return the path of the first bad leaf or key."""
    if isinstance(node, dict):
        for key, value in node.items():
            here = f"{path}.{key!r}" if bad(key) else f"{path}.{key}".lstrip(".")
            if bad(key) or (found := _first(value, bad, here)) is not None:
                return here if bad(key) else found
        return None
    if isinstance(node, list):
        return next(
            (f for n, v in enumerate(node) if (f := _first(v, bad, f"{path}[{n}]")) is not None), None
        )
    return (path or "(root)") if bad(node) else None


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\x00" in value


def _not_json(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, str):
        return not value.isascii() and value.encode("utf-8", "replace") != value.encode(
            "utf-8", "surrogatepass"
        )
    return isinstance(value, int) and value.bit_length() > 14_000


def _explain(declared: JobType, error: ValidationError) -> str:
    faults = [
        f"{'.'.join(str(part) for part in fault['loc']) or '(root)'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
    return f"payload of {declared.name} does not fit {declared.payload_model.__name__}: {'; '.join(faults[:5])}{more}"
