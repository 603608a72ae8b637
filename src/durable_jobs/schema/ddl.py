"""Runs statements that take no parameters, with identifiers quoted by psycopg."""

from __future__ import annotations

from psycopg import sql as pg
from sqlalchemy import Connection


def run(connection: Connection, statement: str, *identifiers: str, literal: str | None = None) -> None:
    """Execute one statement; each `{}` in it is an identifier, `{literal}` the literal."""
    composed = pg.SQL(statement).format(
        *(pg.Identifier(name) for name in identifiers), literal=pg.Literal(literal)
    )
    run_verbatim(connection, composed.as_string(None))


def run_verbatim(connection: Connection, statement: str) -> None:
    """Execute one statement as it is; a per cent sign in it is no placeholder."""
    connection.exec_driver_sql(statement.replace("%", "%%"))
