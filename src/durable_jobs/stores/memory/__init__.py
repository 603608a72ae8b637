"""Jobs in the memory of one process, for tests and try-outs: the rules of Postgres, nothing durable."""

from durable_jobs.stores.memory.store import InMemoryJobsStore

__all__ = ["InMemoryJobsStore"]
