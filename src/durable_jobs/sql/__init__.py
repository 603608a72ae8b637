"""SQL lives in `.sql` files, one statement or function each, loaded by name."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files


@cache
def load(name: str) -> str:
    """Return the text of `sql/<name>.sql`."""
    return files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


@cache
def functions() -> dict[str, str]:
    """Return the database functions by name, as statements that create or replace them."""
    folder = files(__package__).joinpath("functions")
    found = {f.name.removesuffix(".sql"): f for f in folder.iterdir() if f.name.endswith(".sql")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def functions_digest() -> str:
    """Return a digest of all functions: what a database must have been given."""
    return hashlib.sha256("\n".join(functions().values()).encode()).hexdigest()[:16]
