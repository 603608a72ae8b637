"""The block `jobs-database` with the application's connection, for flow runs whose environment names none."""

from __future__ import annotations

from prefect.exceptions import ObjectNotFound
from prefect_sqlalchemy import ConnectionComponents, SqlAlchemyConnector
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from durable_jobs.blocks.jobs_database import BLOCK_NAME, JobsDatabase
from durable_jobs.urls import sqlalchemy_url


async def save_database_block(database_url: str) -> None:
    """Save the block in Prefect, replacing an older one.

    Raises:
        InvalidSettings: the URL is no Postgres URL.
    """
    url = make_url(sqlalchemy_url(database_url))
    components = ConnectionComponents(
        driver=url.drivername,
        host=url.host,
        port=url.port,
        database=url.database,
        username=url.username,
        password=SecretStr(str(url.password)) if url.password is not None else None,
        query={name: str(value) for name, value in url.query.items()} or None,
    )
    block = JobsDatabase(connector=SqlAlchemyConnector(connection_info=components))
    await block.asave(BLOCK_NAME, overwrite=True)


async def stored_database_url() -> SecretStr | None:
    """Return the URL in the block, or None when there is no block, or one that cannot be read."""
    try:
        block: JobsDatabase = await JobsDatabase.aload(BLOCK_NAME)
    except (ValueError, ObjectNotFound):
        return None
    return block.url()
