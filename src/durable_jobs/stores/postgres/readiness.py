"""What must be true of a database before the product uses it: its schema, and a role that is bound.

A role that owns the tables, is a superuser, has BYPASSRLS, or is a member of such a role would see
every tenant, with all tests green.
"""

from __future__ import annotations

import structlog
from psycopg.rows import dict_row

from durable_jobs.errors import SchemaOutdated, UnsafeDatabaseRole
from durable_jobs.revisions import newest_revision
from durable_jobs.sql import functions_digest
from durable_jobs.stores.postgres.database import Database

logger = structlog.get_logger(__name__)

_SCHEMA = """
SELECT (SELECT version_num FROM durable_jobs_version) AS revision,
       obj_description('durable_jobs_version'::regclass, 'pg_class') AS digest
"""
_UNSAFE = """
SELECT r.rolname AS role, session_user AS me,
       CASE WHEN r.rolsuper THEN 'a superuser' WHEN r.rolbypassrls THEN 'allowed to bypass row-level security'
            ELSE 'the owner of the tables' END AS why
FROM pg_roles r
WHERE (pg_has_role(session_user, r.oid, 'MEMBER') OR pg_has_role(current_user, r.oid, 'MEMBER'))
  AND (r.rolsuper OR r.rolbypassrls
       OR r.oid IN (SELECT c.relowner FROM pg_class c
                    WHERE c.oid = 'job_history'::regclass
                       OR (c.relrowsecurity AND c.relnamespace = 'public'::regnamespace)))
ORDER BY r.rolname = session_user DESC LIMIT 1
"""


async def schema_fault(database: Database) -> str | None:
    """Tell what is wrong with the schema, or None."""
    rows = await database.fetch(_SCHEMA, {}, row_factory=dict_row)
    revision, digest = rows[0]["revision"], rows[0]["digest"]
    if revision != newest_revision():
        return f"the database has schema {revision}, this version needs {newest_revision()}"
    if digest != functions_digest():
        return "the database has functions of another version of durable-jobs"
    return None


async def role_fault(database: Database) -> str | None:
    """Tell why the role is not bound by row-level security, or None."""
    rows = await database.fetch(_UNSAFE, {}, row_factory=dict_row)
    if not rows:
        return None
    row = rows[0]
    how = "is" if row["role"] == row["me"] else f"is a member of {row['role']!r}, which is"
    return f"the database role {row['me']!r} {how} {row['why']}, so row-level security does not bind it"


async def require_ready(database: Database, environment: str) -> None:
    """Refuse a database that is not migrated, or a role that sees every tenant.

    Raises:
        SchemaOutdated: run the migrations first.
        UnsafeDatabaseRole: outside development; in development it is only logged.
    """
    if fault := await schema_fault(database):
        raise SchemaOutdated(f"{fault}; bring it up to date with `durable-jobs deploy` or `durable-jobs up`")
    if fault := await role_fault(database):
        advice = "use the role that `durable-jobs deploy` makes (durable_jobs_app_<database>)"
        if environment != "development":
            raise UnsafeDatabaseRole(f"{fault}; {advice}")
        logger.warning("unsafe database role", fault=fault, advice=advice)
