"""Block type `jobs-database`: where the jobs are kept, as the Prefect UI knows databases.

It wraps the connector of prefect-sqlalchemy for its connection details only: the store makes its own
connections from them, since the connector's async form does not take psycopg.
"""

from __future__ import annotations

from prefect.blocks.core import Block
from prefect_sqlalchemy import SqlAlchemyConnector
from pydantic import Field, SecretStr
from sqlalchemy.engine import URL

BLOCK_NAME = "jobs-database"


class JobsDatabase(Block):
    """The Postgres database of durable-jobs, with the application's role (never the owner's)."""

    _block_type_name = "Jobs Database"
    _block_type_slug = "jobs-database"
    _description = "The Postgres database in which durable-jobs keeps its jobs."

    connector: SqlAlchemyConnector = Field(
        description="Connection details: driver postgresql+psycopg, host, port, database, and the application's role."
    )

    def url(self) -> SecretStr:
        """Return the database URL."""
        details = self.connector.connection_info
        url: URL = details if isinstance(details, URL) else details.create_url()
        return SecretStr(url.render_as_string(hide_password=False))
