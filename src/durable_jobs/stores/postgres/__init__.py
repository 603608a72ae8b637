"""Jobs in Postgres."""

from durable_jobs.stores.postgres.store import PgJobsStore

__all__ = ["PgJobsStore"]
