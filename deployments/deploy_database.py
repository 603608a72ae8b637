"""The database's part of a deployment: the schema, the two roles, and the application's login.

Everything is looked at as the owner first. What the owner's role has no right to is told before anything is
changed, with the statements that an administrator must run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import psycopg
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError

from durable_jobs.deployments.deploy_plan import Action, Step
from durable_jobs.errors import BadInput, DurableJobsError, StoreUnavailable
from durable_jobs.schema import VERSION_TABLE, head, knows, migrate
from durable_jobs.schema.roles import TABLES, app_role, enumerator_role, provision
from durable_jobs.sql import functions_digest
from durable_jobs.urls import first_line, libpq_url

_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


class RightMissing(DurableJobsError):
    """The owner's role may not do what the deployment needs; an administrator must."""


class DatabaseNewer(BadInput):
    """The database is at a revision that this version of the package does not know."""


class ForeignRole(BadInput):
    """DURABLE_JOBS_DATABASE_URL names another role than the application's."""


@dataclass(frozen=True)
class Database:
    """What the owner sees."""

    name: str
    owner: str
    may_create_roles: bool
    owns_schema: bool
    roles: frozenset[str]
    may_give_to_enumerator: bool
    revision: str | None
    digest: str | None
    lacking: tuple[str, ...]
    """Tables on which the application's role lacks a right."""

    @property
    def is_current(self) -> bool:
        """Whether a migration would change nothing."""
        current = (self.revision, self.digest) == (head(), functions_digest())
        return current and not self.lacking and {self.app, self.enumerator} <= self.roles

    @property
    def app(self) -> str:
        """The application's role."""
        return app_role(self.name)

    @property
    def enumerator(self) -> str:
        """The role that may only enumerate tenants."""
        return enumerator_role(self.name)


@dataclass(frozen=True)
class DatabasePlan:
    """The steps, and the URL that the application has after them."""

    steps: list[Step]
    application_url: SecretStr


def plan_database(admin_url: str, given: SecretStr | None, stored: SecretStr | None) -> DatabasePlan:
    """Look at the database.

    Args:
        admin_url: the owner's URL.
        given: the application's URL from the settings; its password is the one to have.
        stored: the application's URL in the block of an earlier deployment.

    Raises:
        RightMissing: with the statements that an administrator must run.
        ForeignRole, DatabaseNewer, StoreUnavailable.
    """
    with _explained(), psycopg.connect(libpq_url(admin_url), connect_timeout=10) as connection:
        database = look(connection)
    if database.revision is not None and not knows(database.revision):
        raise DatabaseNewer(
            f"database {database.name} is at revision {database.revision}, which this version does not know:"
            " deploy with the version of durable-jobs that brought it there, or a newer one"
        )
    application = _application_url(admin_url, database, given, stored)
    logs_in = _logs_in(admin_url, application)
    _require_rights(database, logs_in=logs_in)
    steps = [_schema_step(admin_url, database), _login_step(admin_url, database, application, logs_in)]
    return DatabasePlan(steps, SecretStr(application.render_as_string(hide_password=False)))


def look(connection: psycopg.Connection) -> Database:
    """Read what a plan needs to know."""
    row = connection.execute(
        "SELECT current_database(), current_user, rolsuper OR rolcreaterole, rolsuper,"
        " (SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'public')"
        " FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    name, owner, may_create, is_superuser, owns = row or ("", "", False, False, False)
    app, enumerator = app_role(name), enumerator_role(name)
    found = connection.execute("SELECT rolname FROM pg_roles WHERE rolname IN (%s, %s)", [app, enumerator])
    roles = frozenset(rolname for (rolname,) in found)
    revision, digest = _revision(connection)
    return Database(
        name=name,
        owner=owner,
        may_create_roles=bool(may_create),
        owns_schema=bool(owns),
        roles=roles,
        may_give_to_enumerator=is_superuser or (enumerator in roles and _may_become(connection, enumerator)),
        revision=revision,
        digest=digest,
        lacking=_lacking(connection, app) if revision is not None and app in roles else (),
    )


def _revision(connection: psycopg.Connection) -> tuple[str | None, str | None]:
    if connection.execute("SELECT to_regclass(%s)", [VERSION_TABLE]).fetchone() == (None,):
        return None, None
    query = sql.SQL("SELECT version_num, obj_description({}::regclass, 'pg_class') FROM {}")
    row = connection.execute(
        query.format(sql.Literal(VERSION_TABLE), sql.Identifier(VERSION_TABLE))
    ).fetchone()
    return row or (None, None)


def _may_become(connection: psycopg.Connection, role: str) -> bool:
    # Before Postgres 16 every member may.
    kind = "SET" if connection.info.server_version >= 160_000 else "MEMBER"
    return connection.execute("SELECT pg_has_role(%s, %s)", [role, kind]).fetchone() == (True,)


def _lacking(connection: psycopg.Connection, app: str) -> tuple[str, ...]:
    query = (
        "SELECT DISTINCT t FROM unnest(%s::text[]) AS t CROSS JOIN unnest(%s::text[]) AS r"
        " WHERE to_regclass(t) IS NULL OR NOT has_table_privilege(%s, to_regclass(t), r) ORDER BY t"
    )
    return tuple(t for (t,) in connection.execute(query, [list(TABLES), list(_RIGHTS), app]))


def _application_url(
    admin_url: str, database: Database, given: SecretStr | None, stored: SecretStr | None
) -> URL:
    if given is not None:
        url = make_url(libpq_url(given.get_secret_value()))
        if url.username != database.app:
            raise ForeignRole(
                f"DURABLE_JOBS_DATABASE_URL names the role {url.username!r}; the application's role of database"
                f" {database.name} is {database.app!r}. Name that one, with the password it is to have, or leave"
                " the setting out: then a password is made and kept in the block jobs-database"
            )
        return url
    owners = make_url(libpq_url(admin_url))
    kept = make_url(libpq_url(stored.get_secret_value())) if stored is not None else None
    if kept is not None and kept.username == database.app and kept.password is not None:
        return owners.set(username=database.app, password=str(kept.password))
    return owners.set(username=database.app, password=secrets.token_urlsafe(32))


def _logs_in(admin_url: str, application: URL) -> bool:
    """Tell whether the login works on the way that the owner takes; the application's may not be open here."""
    url = make_url(libpq_url(admin_url)).set(username=application.username, password=application.password)
    if application.password is None:
        return False
    try:
        psycopg.connect(libpq_url(url.render_as_string(hide_password=False)), connect_timeout=10).close()
    except psycopg.OperationalError:
        return False
    return True


def _require_rights(database: Database, *, logs_in: bool) -> None:
    """Tell what is missing before anything is changed.

    Raises:
        RightMissing: with the statements for an administrator.
    """
    app, enumerator, owner = (sql.Identifier(n) for n in (database.app, database.enumerator, database.owner))
    needed: list[sql.Composed] = []
    if not database.is_current:
        if not database.owns_schema:
            name = sql.Identifier(database.name)
            needed.append(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(name, owner))
        if not database.may_create_roles:
            if database.app not in database.roles:
                needed.append(sql.SQL("CREATE ROLE {} LOGIN").format(app))
            if database.enumerator not in database.roles:
                needed.append(sql.SQL("CREATE ROLE {} NOLOGIN").format(enumerator))
            if not database.may_give_to_enumerator:
                needed.append(sql.SQL("GRANT {} TO {}").format(enumerator, owner))
    if not logs_in and not database.may_create_roles:
        needed.append(sql.SQL("ALTER ROLE {} PASSWORD '...'").format(app))
    if needed:
        statements = "".join(f"\n  {statement.as_string()};" for statement in needed)
        password = (
            ""
            if logs_in
            else "\nthen set DURABLE_JOBS_DATABASE_URL to the application's URL with this password"
        )
        raise RightMissing(
            f"the role {database.owner!r} of DURABLE_JOBS_ADMIN_DATABASE_URL may not do all that is needed; give it"
            f" CREATEROLE and the database, or let an administrator run:{statements}{password}"
        )


def _schema_step(admin_url: str, database: Database) -> Step:
    async def apply() -> None:
        with _explained():
            await anyio.to_thread.run_sync(migrate, admin_url)

    if database.revision is None:
        return Step("schema", database.name, Action.CREATE, f"to revision {head()}, with its roles", apply)
    if database.is_current:
        return Step("schema", database.name, Action.UNCHANGED, f"revision {head()}")
    if database.revision != head():
        detail = f"from revision {database.revision} to {head()}"
    elif database.lacking:
        detail = f"rights of {database.app} on {', '.join(database.lacking)}"
    else:
        detail = "functions and roles"
    return Step("schema", database.name, Action.CHANGE, detail, apply)


def _login_step(admin_url: str, database: Database, application: URL, logs_in: bool) -> Step:
    async def apply() -> None:
        with _explained():
            await anyio.to_thread.run_sync(provision, admin_url, str(application.password))

    if logs_in:
        return Step("role", database.app, Action.UNCHANGED, "the application's; it logs in")
    if application.password is None:
        return Step(
            "role", database.app, Action.NOTE, "DURABLE_JOBS_DATABASE_URL has no password: none is set"
        )
    action = Action.CHANGE if database.app in database.roles else Action.CREATE
    return Step("role", database.app, action, "the application's password", apply)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"the database does not answer: {first_line(error)}") from error
    except psycopg.Error as error:
        raise _refused(error) from error
    except DBAPIError as error:
        raise _refused(error.orig) from error


def _refused(error: BaseException | None) -> RightMissing:
    return RightMissing(
        f"the database refuses it: {first_line(error)}. The role of DURABLE_JOBS_ADMIN_DATABASE_URL must own the"
        " tables of durable-jobs; an administrator can give them to it: REASSIGN OWNED BY ... TO ..."
    )
