"""The revision that brought retention: up and down on a database with history."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from durable_jobs.revisions import newest_revision
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from tests.conftest import open_store
from tests.support.cluster import Urls
from tests.support.history import DAY, add_jobs, rows_of
from tests.support.purges import purge_once


def indexes(owner: psycopg.Connection) -> set[str]:
    return {row[0] for row in owner.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")}


async def test_history_survives_the_way_down_and_up_and_is_purged_after_it(
    new_database: Callable[[], Urls],
) -> None:
    urls = new_database()
    with psycopg.connect(urls.admin, autocommit=True) as owner:
        before = indexes(owner)
        add_jobs(owner, 50, 100 * DAY, effects=True)
        add_jobs(owner, 50, DAY)
        migrate(urls.admin, "0002")
        assert "job_history_completed" not in indexes(owner)
        assert rows_of(owner, "job_history") == 100
        # Those of the template name the template's role; a database of one's own has none yet.
        for table in ("job_history", "job_events", "job_effects"):
            owner.execute(f"DROP POLICY enumerate_tenants ON {table}")
        migrate(urls.admin, newest_revision())
        assert indexes(owner) == before
        async with open_store(provision(urls.admin, "invented")) as store:
            assert (await purge_once(store)).purged.total == 50
        assert (rows_of(owner, "job_history"), rows_of(owner, "job_effects")) == (50, 0)
