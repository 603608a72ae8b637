"""Keeps the values of a run's parameters out of what people and events are told.

A parameter may hold a secret, and Prefect's messages quote what they do not like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "***"
SHORTEST = 4
"""Shorter values say nothing and are part of many words."""
_INPUT = re.compile(r"input_value=.*?(?=, input_type=|\]|$)", re.MULTILINE)


def without_values(text: str, parameters: Mapping[str, Any]) -> str:
    """Return the text with every value of the parameters replaced, however it is written there."""
    hidden = _INPUT.sub(f"input_value={HIDDEN}", text)
    for value in sorted(set(_written(parameters)), key=len, reverse=True):
        hidden = hidden.replace(value, HIDDEN)
    return hidden


def _written(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for value in node.values():
            yield from _written(value)
    elif isinstance(node, Sequence) and not isinstance(node, str | bytes):
        for value in node:
            yield from _written(value)
    elif isinstance(node, str | int | float) and not isinstance(node, bool):
        plain = str(node)
        for form in (plain, repr(plain)[1:-1], json.dumps(plain)[1:-1]):
            if len(form) >= SHORTEST:
                yield form
