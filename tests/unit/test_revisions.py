"""The newest revision as told without Alembic is the one that Alembic goes to."""

from durable_jobs.revisions import newest_revision
from durable_jobs.schema import head


def test_the_newest_revision_is_alembics_head() -> None:
    assert newest_revision() == head()
