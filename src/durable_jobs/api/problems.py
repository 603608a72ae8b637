"""Every error of the API is one problem document (RFC 9457): what is wrong, where, and the way out.

Invariant: a document holds no value of a payload and nothing of the server's insides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:durable-jobs:problem:"


class FieldFault(BaseModel):
    """One thing that is wrong with a request."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    field: str = Field(
        description="Path of the field, such as `data.pages.0`, `query.since`, `header.Range`."
    )
    kind: str = Field(description="Kind of the value given: string, integer, object, ..., missing.")
    message: str = Field(description="What is wrong and what is expected.")


class Problem(BaseModel):
    """A problem document as RFC 9457 describes it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    type: str = Field(description="A stable name of the problem for programs.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong here, and the way out.")
    instance: str | None = Field(None, description="The request, by its X-Request-Id.")
    errors: list[FieldFault] | None = Field(None, description="Each field that is wrong.")


class Refusal(Exception):
    """A request is answered with a problem."""

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        *,
        errors: Sequence[FieldFault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Name the problem (the end of its type), say what is wrong and the way out."""
        self.status, self.name, self.detail = status, name, detail
        self.errors, self.headers = list(errors), dict(headers or {})
        super().__init__(detail)


def retry_after(seconds: float) -> dict[str, str]:
    """Return the header that says how long to wait: whole seconds, and enough."""
    return {"Retry-After": str(max(1, -int(-seconds // 1)))}


def render(refusal: Refusal, request_id: str | None = None) -> Response:
    """Return the problem document of a refusal."""
    document: dict[str, Any] = {
        "type": f"{TYPE_PREFIX}{refusal.name}",
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "detail": refusal.detail,
    }
    if request_id is not None:
        document["instance"] = f"urn:request:{request_id}"
    if refusal.errors:
        document["errors"] = [fault.model_dump(by_alias=True) for fault in refusal.errors]
    # ASCII, so that any text of a request can be told back.
    content = json.dumps(document, ensure_ascii=True)
    return Response(content, refusal.status, refusal.headers, media_type=MEDIA_TYPE)


def kind_of(value: object) -> str:
    """Return the JSON kind of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
    return type(value).__name__
