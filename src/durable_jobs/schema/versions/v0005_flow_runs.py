"""What keeping failed flow runs needs: the jobs of a run are found, and how far runs were looked for is known.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_UPGRADE = (
    # Few jobs have a flow run of their own.
    "CREATE INDEX job_history_flow_run ON job_history (flow_run_id) WHERE flow_run_id IS NOT NULL",
    # What is compared with Prefect every minute: a look at the newest of these, whatever else there is.
    "CREATE INDEX job_history_runs_ended ON job_history (completed_at)"
    " WHERE job_type = 'PREFECT_FLOW_RUN' AND state IN ('FAILED', 'CANCELLED')",
    """
    CREATE TABLE search_positions (
        name text PRIMARY KEY,
        reached timestamptz NOT NULL,
        updated_at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 50)
    """,
)


def upgrade() -> None:
    """Add two indexes and a table; the version before neither needs nor minds them."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Take them away: the next search begins with its window."""
    op.execute("DROP TABLE search_positions")
    op.execute("DROP INDEX job_history_runs_ended")
    op.execute("DROP INDEX job_history_flow_run")
