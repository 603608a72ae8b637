"""The two databases of the stack: our own, migrated, and Prefect's, beside it on the same server.

The application's role gets a password that is kept in the home, so its URL stays the same at every start.
The owner's URL goes to nobody else; on the embedded server Prefect has a role of its own.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy.engine import URL, make_url

from durable_jobs.embedded.secretfile import write_secret
from durable_jobs.errors import BadInput, StoreUnavailable
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from durable_jobs.urls import first_line, libpq_url

DATABASE = "durable_jobs"
PREFECT_DATABASE = "prefect"
OURS = "Prefect's own tables, made by durable-jobs up"


class ForeignPrefectDatabase(BadInput):
    """The database for Prefect's tables exists already and belongs to somebody else."""


def kept_secret(file: Path) -> str:
    """Return the secret in a file of mode 0600, which is made at the first call."""
    if file.exists() and (secret := file.read_text().strip()):
        return secret
    secret = secrets.token_urlsafe(32)
    write_secret(file, secret)
    return secret


def prepare_application(admin_url: str, password: str) -> str:
    """Migrate our database, make its roles and return the application's URL."""
    migrate(admin_url)
    return provision(admin_url, password)


def prepare_prefect(admin_url: str, password: str, *, server_is_ours: bool) -> str:
    """Make the database `prefect` on the server of `admin_url`; return its URL for the Prefect server.

    A superuser makes a role for it; another owner lends its own login, having no right to do more.

    Args:
        admin_url: an owner's URL.
        password: of the role for the Prefect server.
        server_is_ours: nobody else has databases there.

    Raises:
        ForeignPrefectDatabase: a database of that name exists, and not because of us.
        StoreUnavailable: the server does not answer.
    """
    url = make_url(libpq_url(admin_url))
    try:
        with psycopg.connect(libpq_url(admin_url), autocommit=True, connect_timeout=10) as connection:
            if connection.info.parameter_status("is_superuser") == "on":
                url = url.set(username=_role(connection, password), password=password)
            _database(connection, str(url.username), server_is_ours=server_is_ours)
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"the database does not answer: {first_line(error)}") from error
    return _asyncpg_url(url)


def _role(connection: psycopg.Connection, password: str) -> str:
    name = f"{PREFECT_DATABASE}_server"
    known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone()
    verb = "ALTER" if known else "CREATE"
    statement = sql.SQL("{} ROLE {} LOGIN PASSWORD {}")
    connection.execute(statement.format(sql.SQL(verb), sql.Identifier(name), sql.Literal(password)))
    return name


def _database(connection: psycopg.Connection, owner: str, *, server_is_ours: bool) -> None:
    query = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s"
    row = connection.execute(query, [PREFECT_DATABASE]).fetchone()
    if row is None:
        names = sql.Identifier(PREFECT_DATABASE), sql.Identifier(owner)
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(*names))
        comment = sql.SQL("COMMENT ON DATABASE {} IS {}")
        connection.execute(comment.format(sql.Identifier(PREFECT_DATABASE), sql.Literal(OURS)))
    elif row[0] != OURS and not server_is_ours:
        raise ForeignPrefectDatabase(_foreign())


def _foreign() -> str:
    mark = sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(PREFECT_DATABASE), sql.Literal(OURS))
    return (
        f"the server has a database {PREFECT_DATABASE!r} that `durable-jobs up` did not make, and a Prefect"
        " server of another version may be using it. Use another Postgres server; or, if the database is free"
        f" to use, say so to Postgres: {mark.as_string()}"
    )


def _asyncpg_url(url: URL) -> str:
    query = {"ssl": url.query["sslmode"]} if "sslmode" in url.query else {}
    prefect = url.set(drivername="postgresql+asyncpg", database=PREFECT_DATABASE, query=query)
    return prefect.render_as_string(hide_password=False)
