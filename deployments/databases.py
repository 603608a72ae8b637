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


class MayNotCreateDatabase(BadInput):
    """The owner's role has no right to create the database for Prefect's tables."""


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
        ForeignPrefectDatabase: a database of that name is in use, and not because of us.
        MayNotCreateDatabase: the owner has not the right.
        StoreUnavailable: the server does not answer.
    """
    url = make_url(libpq_url(admin_url))
    try:
        with psycopg.connect(libpq_url(admin_url), autocommit=True, connect_timeout=10) as connection:
            if connection.info.parameter_status("is_superuser") == "on":
                url = url.set(username=_role(connection, password), password=password)
            _create_database(connection, str(url.username))
            if not server_is_ours:
                _refuse_foreign(connection, libpq_url(admin_url))
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


def _create_database(connection: psycopg.Connection, owner: str) -> None:
    if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [PREFECT_DATABASE]).fetchone():
        return
    names = sql.Identifier(PREFECT_DATABASE), sql.Identifier(owner)
    statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(*names)
    try:
        connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise MayNotCreateDatabase(
            f"the role {owner!r} of --database-url may not create the database that Prefect's tables need;"
            f" give it CREATEDB, or let an administrator run: {statement.as_string()}"
        ) from error
    _mark(connection)


def _refuse_foreign(connection: psycopg.Connection, admin_url: str) -> None:
    query = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s"
    if connection.execute(query, [PREFECT_DATABASE]).fetchone() == (OURS,):
        return
    with psycopg.connect(admin_url, dbname=PREFECT_DATABASE, connect_timeout=10) as inside:
        tables = (
            "SELECT 1 FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') LIMIT 1"
        )
        if inside.execute(tables).fetchone():
            raise ForeignPrefectDatabase(
                f"the server has a database {PREFECT_DATABASE!r} that `durable-jobs up` did not make, and a Prefect"
                " server of another version may be using it. Use another Postgres server; or, if the database is"
                f" free to use, say so to Postgres: {_marking().as_string()}"
            )
    _mark(connection)


def _mark(connection: psycopg.Connection) -> None:
    connection.execute(_marking())


def _marking() -> sql.Composed:
    return sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(PREFECT_DATABASE), sql.Literal(OURS))


def _asyncpg_url(url: URL) -> str:
    query = {"ssl": url.query["sslmode"]} if "sslmode" in url.query else {}
    prefect = url.set(drivername="postgresql+asyncpg", database=PREFECT_DATABASE, query=query)
    return prefect.render_as_string(hide_password=False)
