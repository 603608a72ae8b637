"""Database URLs in the form each library wants, and error texts without the URL's secrets.

SQLAlchemy reads URLs as people write them, and loads slowly; a plain URL goes without it.
"""

from __future__ import annotations

import re

from durable_jobs.errors import InvalidSettings

_CHARACTERS = r"(?:[\w.~-]|%[0-9A-Fa-f]{2})"
_PLAIN = re.compile(
    rf"(?:postgresql|postgres)(?:\+psycopg)?://"
    rf"({_CHARACTERS}+(?::{_CHARACTERS}+)?@[A-Za-z0-9.-]+(?::[0-9]+)?/{_CHARACTERS}+)",
    re.ASCII,
)


def sqlalchemy_url(url: str) -> str:
    """Return the URL with the driver psycopg.

    Raises:
        InvalidSettings: it is no Postgres URL.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidSettings(
            "the database URL cannot be read; it has the form postgresql://user:password@host/database"
        ) from error
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise InvalidSettings(
            f"the database URL begins with {parsed.drivername!r}; durable-jobs needs Postgres: postgresql://..."
        )
    return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def libpq_url(url: str) -> str:
    """Return the URL as libpq takes it."""
    if plain := _PLAIN.fullmatch(url):
        return f"postgresql://{plain[1]}"

    from sqlalchemy.engine import make_url

    written = make_url(sqlalchemy_url(url)).set(drivername="postgresql").render_as_string(hide_password=False)
    # SQLAlchemy leaves spaces before the query as they are (libpq refuses them, and shows the password
    # in its message), and writes them as "+" in the query, which is a plus to libpq.
    address, mark, query = written.partition("?")
    return address.replace(" ", "%20") + mark + query.replace("+", "%20")


def without_password(url: str) -> str:
    """Return the URL for people to read."""
    from sqlalchemy.engine import make_url

    return make_url(url).render_as_string(hide_password=True)


def first_line(error: BaseException | None) -> str:
    """Return the first line of a driver's message; libpq never puts the password there."""
    lines = str(error or "").strip().splitlines()
    return lines[0] if lines else type(error).__name__
