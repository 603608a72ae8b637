"""Text from jobs on its way into a markdown table."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#])")


def cell(text: str, limit: int = 80) -> str:
    """Return one line that markdown shows as it is, at most `limit` characters of it."""
    line = " ".join(text.split())
    shortened = line if len(line) <= limit else line[: limit - 1] + "…"
    return _SPECIAL.sub(r"\\\1", shortened)
