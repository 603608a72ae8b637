"""What is on its way to Prefect is found at once, however many events wait behind it.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an index over a few hundred rows at most; the version before does not mind it."""
    op.execute(
        "CREATE INDEX job_events_posted ON job_events (posted_at)"
        " WHERE published_at IS NULL AND posted_at IS NOT NULL"
    )


def downgrade() -> None:
    """Take it away."""
    op.execute("DROP INDEX job_events_posted")
