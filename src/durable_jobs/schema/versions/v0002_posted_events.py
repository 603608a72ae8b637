"""An event remembers since when Prefect is to have it, so that no transaction waits for Prefect.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column without a default, which rewrites nothing; the version before does not look at it."""
    op.execute("ALTER TABLE job_events ADD COLUMN posted_at timestamptz")


def downgrade() -> None:
    """Forget it: what was posted and not yet seen is posted again."""
    op.execute("ALTER TABLE job_events DROP COLUMN posted_at")
