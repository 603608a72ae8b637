"""Alembic's environment: runs on the connection that `durable_jobs.schema.migrate` opened."""

from alembic import context

from durable_jobs.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
