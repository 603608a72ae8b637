"""Is the database there, migrated, of a version that works, and does row-level security bind us?"""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from durable_jobs.cli.checks.findings import Finding, Status, failed, ok, unknown
from durable_jobs.errors import SchemaOutdated
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres.database import Database
from durable_jobs.stores.postgres.readiness import role_fault, schema_fault

OLDEST = 150_000
MIGRATE = "bring it up to date with `durable-jobs deploy` or `durable-jobs up`"

_SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
       current_user AS role, current_database() AS name
"""
# Every table of ours that has a tenant, whichever they are in this version.
_TENANT_TABLES = """
SELECT c.relname AS name, c.relrowsecurity AND c.relforcerowsecurity AS forced
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p')
  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('job_history'))
ORDER BY c.relname
"""


async def check_server(database: Database) -> list[Finding]:
    """Tell the database's address and version.

    Raises:
        StoreUnavailable: it does not answer.
    """
    [server] = await database.fetch(_SERVER, {}, row_factory=dict_row)
    where = f"database {server['name']} answers as role {server['role']}"
    version = f"PostgreSQL {server['version'].split()[0]}"
    if server["number"] < OLDEST:
        return [
            ok("database", where),
            failed("database version", f"{version} is too old", "move to PostgreSQL 15 or newer"),
        ]
    return [ok("database", where), ok("database version", version)]


async def check_schema(database: Database) -> Finding:
    """Compare the schema's revision and functions with this version's."""
    try:
        fault = await schema_fault(database)
    except SchemaOutdated:
        fault = "the database has no tables of durable-jobs"
    if fault:
        return failed("schema", fault, MIGRATE)
    return ok("schema", "its revision and its functions are those of this version")


async def check_role(database: Database, settings: Settings) -> Finding:
    """Prove that the role cannot see past row-level security; in development it may."""
    fault = await role_fault(database)
    if fault is None:
        return ok("database role", "row-level security binds it")
    status = Status.WARNING if settings.environment == "development" else Status.FAILED
    way_out = (
        "use the role that `durable-jobs deploy` and `durable-jobs up` make, durable_jobs_app_<database>"
    )
    return Finding("database role", status, fault, way_out)


async def check_row_level_security(database: Database) -> Finding:
    """Prove that it is forced, on the owner too, for every table that has a tenant."""
    rows: list[dict[str, Any]] = await database.fetch(_TENANT_TABLES, {}, row_factory=dict_row)
    open_tables = [row["name"] for row in rows if not row["forced"]]
    if not rows:
        return unknown("row-level security", "there are no tables yet", MIGRATE)
    if open_tables:
        alter = "; ".join(
            f"ALTER TABLE {t} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY" for t in open_tables
        )
        return failed(
            "row-level security", f"not forced on {', '.join(open_tables)}", f"as the owner: {alter}"
        )
    return ok("row-level security", f"forced on {', '.join(row['name'] for row in rows)}")
