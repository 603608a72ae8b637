"""What retention needs: history in the order in which it ended, and a record of each purge.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_UPGRADE = (
    # The order in which a purge walks; the id behind the time makes every page begin where the last ended.
    "CREATE INDEX job_history_completed ON job_history (tenant_id, completed_at, job_id)"
    " WHERE completed_at IS NOT NULL",
    "DROP INDEX job_effects_age",
    "CREATE INDEX job_effects_age ON job_effects (tenant_id, created_at, id)",
    # Events of the system have no tenant; a tenant's name is never empty.
    "CREATE INDEX job_events_published ON job_events (coalesce(tenant_id, ''), occurred_at, event_id)"
    " WHERE published_at IS NOT NULL",
    # Totals only, nothing of any tenant. A run without an end was killed.
    """
    CREATE TABLE purge_runs (
        run_id uuid PRIMARY KEY,
        started_at timestamptz NOT NULL DEFAULT now(),
        finished_at timestamptz,
        outcome text CHECK (outcome IN ('succeeded', 'failed')),
        fault text,
        jobs_before timestamptz NOT NULL,
        effects_before timestamptz NOT NULL,
        jobs bigint NOT NULL DEFAULT 0,
        events bigint NOT NULL DEFAULT 0,
        effects bigint NOT NULL DEFAULT 0,
        bytes bigint NOT NULL DEFAULT 0,
        CONSTRAINT finished_has_outcome CHECK ((finished_at IS NULL) = (outcome IS NULL)),
        CONSTRAINT failed_has_fault CHECK (outcome IS DISTINCT FROM 'failed' OR fault IS NOT NULL)
    ) WITH (fillfactor = 50)
    """,
    "CREATE INDEX purge_runs_started ON purge_runs (started_at)",
)

_DOWNGRADE = (
    "DROP TABLE purge_runs",
    "DROP INDEX job_events_published",
    "DROP INDEX job_effects_age",
    "CREATE INDEX job_effects_age ON job_effects (tenant_id, created_at)",
    "DROP INDEX job_history_completed",
)


def upgrade() -> None:
    """Add indexes and a table; the version before neither needs nor minds them."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Take them away; the record of purges goes, no job does."""
    for statement in _DOWNGRADE:
        op.execute(statement)
