"""What the processes of the API share: the count of each tenant's submissions, and the key of its cursors.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TENANTS = "(SELECT nullif(current_setting('durable_jobs.tenant_ids', true), '')::text[])::text[]"
_MINE = f"tenant_id = ANY ({_TENANTS})"

_UPGRADE = (
    # Unlogged: no disk is waited for, and a crash of the server forgives a minute of submissions.
    """
    CREATE UNLOGGED TABLE rate_counts (
        tenant_id text PRIMARY KEY CHECK (tenant_id <> ''),
        newest bigint NOT NULL,
        counts integer[] NOT NULL CHECK (cardinality(counts) = 61)
    ) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
            autovacuum_vacuum_cost_delay = 0)
    """,
    "ALTER TABLE rate_counts ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE rate_counts FORCE ROW LEVEL SECURITY",
    f"CREATE POLICY tenants_of_this_transaction ON rate_counts USING ({_MINE}) WITH CHECK ({_MINE})",
    """
    CREATE TABLE api_keys (
        name text PRIMARY KEY,
        key bytea NOT NULL CHECK (length(key) >= 32),
        made_at timestamptz NOT NULL DEFAULT now()
    )
    """,
)


def upgrade() -> None:
    """Add two tables; the version before does not know them."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Take them away; cursors that were given out are refused afterwards."""
    op.execute("DROP TABLE api_keys")
    op.execute("DROP TABLE rate_counts CASCADE")
