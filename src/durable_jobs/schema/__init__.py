"""The schema of the database: migrations, functions and roles, applied in one transaction.

Tables change by Alembic migrations. Functions are the current files under sql/functions; when their digest
differs, those of the version before go and the current ones come, so that no overload or result of an older
signature is left. Roles are named per database and made when they are missing.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from durable_jobs.errors import StoreUnavailable
from durable_jobs.schema.ddl import run, run_verbatim
from durable_jobs.schema.roles import apply_roles
from durable_jobs.sql import functions, functions_digest
from durable_jobs.urls import first_line, sqlalchemy_url

VERSION_TABLE = "durable_jobs_version"
_LOCK = 0x6475_7261_626C_65
_OURS = "durable-jobs"
"""Marks a function as ours, also when a later version no longer has it."""


def head() -> str:
    """Return the newest revision that this version of the package knows."""
    revision = ScriptDirectory.from_config(_config(None)).get_current_head()
    return str(revision)


def knows(revision: str) -> bool:
    """Tell whether a database at this revision is of this version of the package or an older one."""
    try:
        return ScriptDirectory.from_config(_config(None)).get_revision(revision) is not None
    except CommandError:
        return False


def migrate(admin_url: str, revision: str = "head") -> None:
    """Bring the database to a revision, with its functions and roles; safe to repeat and to race.

    Args:
        admin_url: URL of the owner. Needs CREATEROLE unless the two roles exist.
        revision: an Alembic revision; "base" takes everything away again.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    engine = create_engine(sqlalchemy_url(admin_url), poolclass=NullPool)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            if revision == "base":
                _drop_functions(connection)
                command.downgrade(_config(connection), "base")
                return
            _to_revision(connection, revision)
            _apply_functions(connection)
            apply_roles(connection)
    except OperationalError as error:
        raise StoreUnavailable(f"the database does not answer: {first_line(error.orig)}") from error
    finally:
        engine.dispose()


def _to_revision(connection: Connection, revision: str) -> None:
    config = _config(connection)
    script = ScriptDirectory.from_config(config)
    table = connection.scalar(text("SELECT to_regclass(:name)"), {"name": VERSION_TABLE})
    current = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) if table else None  # noqa: S608 -- a constant
    wanted = script.get_revision(revision)
    newer = {r.revision for r in script.iterate_revisions(current, "base")} if current else set()
    if wanted is not None and wanted.revision in newer and wanted.revision != current:
        _drop_functions(connection)
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)


def _apply_functions(connection: Connection) -> None:
    digest = functions_digest()
    current = connection.scalar(
        text("SELECT obj_description(CAST(:name AS regclass), 'pg_class')"), {"name": VERSION_TABLE}
    )
    if current == digest:
        return
    _drop_functions(connection)
    connection.execute(text("SET LOCAL check_function_bodies = off"))
    for name, statement in functions().items():
        run_verbatim(connection, statement)
        run(connection, "COMMENT ON FUNCTION {} IS {literal}", name, literal=_OURS)
    run(connection, "COMMENT ON TABLE {} IS {literal}", VERSION_TABLE, literal=digest)


def _drop_functions(connection: Connection) -> None:
    """Drop what an earlier version made: by our mark, and by name where it set none yet."""
    ours = text(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " AND (obj_description(oid, 'pg_proc') = :ours OR proname = ANY (:names))"
    )
    for signature in connection.scalars(ours, {"ours": _OURS, "names": list(functions())}).all():
        run_verbatim(connection, f"DROP FUNCTION {signature}")
    if connection.scalar(text("SELECT to_regclass(:name)"), {"name": VERSION_TABLE}):
        run(connection, "COMMENT ON TABLE {} IS NULL", VERSION_TABLE)


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
