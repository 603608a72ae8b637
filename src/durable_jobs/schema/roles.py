"""Two roles for each database: the application's, and the one that may only enumerate tenants.

The application's role is neither owner nor superuser and cannot bypass row-level security. Roles
belong to the whole server, so their names carry the database's name.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from durable_jobs.schema.ddl import run
from durable_jobs.urls import sqlalchemy_url

TABLES = (
    "job_history", "job_events", "job_effects", "job_executors", "queue_leases", "queue_pending",
    "queue_pending_released", "paused", "health_states", "purge_runs",
    "search_positions", "rate_counts", "api_keys",
)  # fmt: skip
_DEFINER_FUNCTIONS = (
    "list_tenants(text, text, text, integer)",
    "count_jobs()",
    "count_events()",
    "measure_live(text[], text[], interval, timestamptz)",
    "measure_recent(text[], text[], interval[], integer, timestamptz)",
)
_READABLE = {
    "job_history": (
        "tenant_id", "queue", "job_type", "state", "run_at", "retryable", "crash_count", "job_id", "replay_of",
        "executor_id", "deadline_at", "created_at", "started_at", "completed_at",
    ),
    "job_events": ("tenant_id", "published_at", "posted_at", "occurred_at"),
    "job_effects": ("tenant_id",),
}  # fmt: skip
# No tenant's, so they have no policies.
_READABLE_OF_SYSTEM = {
    "job_executors": ("executor_id", "last_seen_at", "idle", "draining"),
    "paused": ("kind", "name"),
}


def app_role(database: str) -> str:
    """Name of the application's role."""
    return _named("durable_jobs_app", database)


def enumerator_role(database: str) -> str:
    """Name of the role that owns the functions which look across tenants."""
    return _named("durable_jobs_enum", database)


def _named(prefix: str, database: str) -> str:
    name = f"{prefix}_{database}"
    if len(name.encode()) <= 63:
        return name
    return f"{prefix}_{hashlib.sha256(database.encode()).hexdigest()[:16]}"


def apply_roles(connection: Connection) -> None:
    """Make the roles that are missing and give each what it needs, nothing else."""
    database = str(connection.scalar(text("SELECT current_database()")))
    app, enumerator = app_role(database), enumerator_role(database)
    for role, attributes in ((app, "LOGIN"), (enumerator, "NOLOGIN")):
        if not connection.scalar(text("SELECT true FROM pg_roles WHERE rolname = :r"), {"r": role}):
            run(connection, f"CREATE ROLE {{}} {attributes} NOSUPERUSER NOCREATEDB NOCREATEROLE", role)
    run(connection, "GRANT USAGE ON SCHEMA public TO {}, {}", app, enumerator)
    for table in TABLES:
        # A database that was brought to an older revision does not have the newer ones.
        if connection.scalar(text("SELECT to_regclass(:t)"), {"t": table}) is None:
            continue
        run(connection, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {{}}", app)
    run(connection, "GRANT SELECT ON durable_jobs_version TO {}", app)
    _let_enumerate(connection, enumerator, app)


def _let_enumerate(connection: Connection, enumerator: str, app: str) -> None:
    for table, columns in (_READABLE | _READABLE_OF_SYSTEM).items():
        run(connection, f"GRANT SELECT ({', '.join(columns)}) ON {table} TO {{}}", enumerator)
    for table in _READABLE:
        exists = text(
            "SELECT true FROM pg_policies WHERE tablename = :t AND policyname = 'enumerate_tenants'"
        )
        if not connection.scalar(exists, {"t": table}):
            run(
                connection,
                f"CREATE POLICY enumerate_tenants ON {table} FOR SELECT TO {{}} USING (true)",
                enumerator,
            )
    # A function may be given to a role only by a member of it, and the role must be able to own here.
    if not _may_become(connection, enumerator):
        run(connection, "GRANT {} TO CURRENT_USER", enumerator)
    run(connection, "GRANT CREATE ON SCHEMA public TO {}", enumerator)
    for function in _DEFINER_FUNCTIONS:
        run(connection, f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
        run(connection, f"GRANT EXECUTE ON FUNCTION {function} TO {{}}", app)
        run(connection, f"ALTER FUNCTION {function} OWNER TO {{}}", enumerator)
    run(connection, "REVOKE CREATE ON SCHEMA public FROM {}", enumerator)


def _may_become(connection: Connection, role: str) -> bool:
    """Tell whether the current role may already act as another; an administrator may have given it that."""
    # Before Postgres 16 every member may.
    version = int(connection.scalar(text("SELECT current_setting('server_version_num')")) or 0)
    kind = "SET" if version >= 160_000 else "MEMBER"
    return bool(connection.scalar(text("SELECT pg_has_role(:role, :kind)"), {"role": role, "kind": kind}))


def provision(admin_url: str, password: str) -> str:
    """Set the application role's password and return the URL that the application uses."""
    engine = create_engine(sqlalchemy_url(admin_url), poolclass=NullPool)
    try:
        with engine.begin() as connection:
            database = str(connection.scalar(text("SELECT current_database()")))
            run(connection, "ALTER ROLE {} LOGIN PASSWORD {literal}", app_role(database), literal=password)
    finally:
        engine.dispose()
    url = make_url(admin_url).set(drivername="postgresql", username=app_role(database), password=password)
    return url.render_as_string(hide_password=False)
