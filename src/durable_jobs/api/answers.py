"""Answers as JSON: documents that are ready, without a second validation on the way out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


def answer_json(document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Response(text, status, dict(headers or {}), media_type="application/json")
