"""The newest revision of the schema that this version of the package knows, told without Alembic.

Alembic loads slowly, and every process compares its revision with the database's when it starts.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_VERSIONS = Path(__file__).parent / "schema" / "versions"
_NAME = re.compile(r"v(\d+)_\w+\.py")


@cache
def newest_revision() -> str:
    """Return the number in the name of the newest migration, which is its revision."""
    return max(found[1] for file in _VERSIONS.iterdir() if (found := _NAME.fullmatch(file.name)))
