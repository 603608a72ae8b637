"""An executor says which job types it executes, so that it relieves nobody whose types it does not know.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns that rewrite nothing; an executor of the version before does not say, which counts as all."""
    op.execute("ALTER TABLE job_executors ADD COLUMN job_types text[]")
    op.execute("ALTER TABLE job_executors ADD COLUMN left_out text[] NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    """Forget them."""
    op.execute("ALTER TABLE job_executors DROP COLUMN left_out")
    op.execute("ALTER TABLE job_executors DROP COLUMN job_types")
