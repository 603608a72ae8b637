"""Row-level security binds us: the role, every table, every function that looks across tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

from durable_jobs.errors import UnsafeDatabaseRole
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import Urls
from tests.support.jobs import new_job
from tests.support.stores import open_store

# Tables of the whole system, which no row of a tenant is in. A new table without a tenant_id must be
# put here on purpose, or get one.
SYSTEM_TABLES = {
    "api_keys", "durable_jobs_version", "health_states", "job_executors", "paused", "purge_runs", "queue_leases",
    "queue_pending", "queue_pending_released", "search_positions",
}  # fmt: skip

_UNGUARDED = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
  AND c.relname <> ALL (%s)
  AND NOT (
    c.relrowsecurity AND c.relforcerowsecurity
    AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id')
    AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polcmd = '*'
                AND p.polroles = '{0}' AND p.polqual IS NOT NULL AND p.polwithcheck IS NOT NULL))
"""


def unguarded_tables(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(_UNGUARDED, [sorted(SYSTEM_TABLES)])]


def test_every_table_of_tenants_is_guarded_and_a_new_one_is_found(
    new_database: Callable[[], Urls],
) -> None:
    other = new_database().admin
    assert unguarded_tables(other) == []
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute("CREATE TABLE job_notes (tenant_id text NOT NULL, note text)")
        assert unguarded_tables(other) == ["job_notes"]
        connection.execute("ALTER TABLE job_notes ENABLE ROW LEVEL SECURITY")
        connection.execute("CREATE POLICY p ON job_notes USING (true) WITH CHECK (true)")
        assert unguarded_tables(other) == ["job_notes"]
        connection.execute("ALTER TABLE job_notes FORCE ROW LEVEL SECURITY")
        assert unguarded_tables(other) == []


def sees_other_tenants(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return bool(connection.execute("SELECT FROM job_history").fetchall())


async def test_the_canary_sings_where_row_security_is_bypassed(pg_store: PgJobsStore, urls: Urls) -> None:
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job()])
    assert not sees_other_tenants(urls.application)
    assert sees_other_tenants(urls.admin)


def test_the_tests_themselves_run_as_the_restricted_role(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
    assert row == (False, False, False, False)


@pytest.fixture
def own(new_database: Callable[[], Urls]) -> Iterator[tuple[Urls, psycopg.Connection]]:
    """A database of its own whose owner makes roles; they go with the test."""
    urls = new_database()
    with psycopg.connect(urls.admin, autocommit=True) as connection:
        yield urls, connection
        made = connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'unsafe_%'").fetchall()
        for (name,) in made:
            connection.execute(sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


ROLES = {
    "superuser": (["CREATE ROLE unsafe_login LOGIN SUPERUSER PASSWORD 'pw'"], "is a superuser"),
    "BYPASSRLS": (
        ["CREATE ROLE unsafe_login LOGIN BYPASSRLS PASSWORD 'pw'"],
        "is allowed to bypass row-level security",
    ),
    "owner": (
        [
            "CREATE ROLE unsafe_login LOGIN PASSWORD 'pw'",
            "ALTER TABLE job_history OWNER TO unsafe_login",
            "ALTER TABLE job_history NO FORCE ROW LEVEL SECURITY",
        ],
        "is the owner of the tables",
    ),
    "owner of another table": (
        ["CREATE ROLE unsafe_login LOGIN PASSWORD 'pw'", "ALTER TABLE job_effects OWNER TO unsafe_login"],
        "is the owner of the tables",
    ),
    "member of a bypassing role": (
        [
            "CREATE ROLE unsafe_group BYPASSRLS",
            "CREATE ROLE unsafe_between IN ROLE unsafe_group",
            "CREATE ROLE unsafe_login LOGIN NOINHERIT PASSWORD 'pw' IN ROLE unsafe_between",
        ],
        "is a member of 'unsafe_group', which is allowed to bypass",
    ),
    "member of the owner": (
        [
            "CREATE ROLE unsafe_group",
            "ALTER TABLE job_history OWNER TO unsafe_group",
            "CREATE ROLE unsafe_login LOGIN PASSWORD 'pw' IN ROLE unsafe_group",
        ],
        "is a member of 'unsafe_group', which is the owner",
    ),
    "bypassing role behind a harmless one": (
        [
            "CREATE ROLE unsafe_harmless",
            "CREATE ROLE unsafe_login LOGIN BYPASSRLS PASSWORD 'pw' IN ROLE unsafe_harmless",
            "ALTER ROLE unsafe_login SET role = 'unsafe_harmless'",
            "GRANT SELECT ON durable_jobs_version TO unsafe_harmless",
        ],
        "is allowed to bypass row-level security",
    ),
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.xdist_group("roles")
async def test_an_unsafe_role_is_refused(own: tuple[Urls, psycopg.Connection], role: str) -> None:
    urls, connection = own
    statements, why = ROLES[role]
    for statement in statements:
        connection.execute(statement.encode())
    connection.execute("GRANT SELECT ON durable_jobs_version, job_history TO PUBLIC")
    store = open_store(_as(urls.application, "unsafe_login"))
    for environment in ("staging", "production"):
        with pytest.raises(UnsafeDatabaseRole, match=f"'unsafe_login' {why}.*durable_jobs_app_"):
            await store.open(environment=environment)
    await store.open(environment="development")
    await store.close()


async def test_the_right_role_is_accepted(database_url: str) -> None:
    store = open_store(database_url)
    await store.open(environment="production")
    await store.close()


def _as(url: str, user: str) -> str:
    return make_url(url).set(username=user, password="pw").render_as_string(hide_password=False)


def definer_functions(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    rows = connection.execute(
        "SELECT p.proname, p.proconfig, r.rolname, r.rolsuper OR r.rolbypassrls OR r.rolcanlogin,"
        " p.proacl::text, pg_get_function_result(p.oid)"
        " FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner"
        " WHERE p.prosecdef AND p.pronamespace = 'public'::regnamespace"
    ).fetchall()
    return {row[0]: row[1:] for row in rows}


def test_what_looks_across_tenants_is_pinned_and_says_little(urls: Urls) -> None:
    with psycopg.connect(urls.admin) as connection:
        found = definer_functions(connection)
    assert {"list_tenants", "count_jobs"} <= found.keys()
    assert found["list_tenants"][-1] == "SETOF text"
    for config, owner, is_powerful, acl, _ in found.values():
        assert "search_path=pg_catalog, public" in config
        assert owner.startswith("durable_jobs_enum_")
        assert not is_powerful
        # An entry without a role's name would be PUBLIC's.
        assert all(not entry.startswith("=") for entry in acl.strip("{}").split(","))


def test_the_enumerator_reads_only_the_columns_it_needs(urls: Urls) -> None:
    with psycopg.connect(urls.admin, autocommit=True) as connection:
        [owner] = {row[1] for row in definer_functions(connection).values()}
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
        connection.execute("SELECT DISTINCT tenant_id FROM job_history")
        for column in ("payload", "result", "idempotency_key", "failed_reason", "submitted_by", "progress"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT {column} FROM job_history")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE job_history SET priority = 1")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE public.mine (id int)")
    with psycopg.connect(urls.application, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE public.mine (id int)")
