"""Retention: history goes when its time is over, never earlier, and each purge proves both.

A chain of retries is one thing: it goes when the last of its jobs is due. Effects have a time of their own
and never go before their chain. What is listed is what is purged, and what is left is counted again.
"""

from durable_jobs.retention.bullmq import RedisPurged, purge_redis
from durable_jobs.retention.looking import Look, TenantLook, look
from durable_jobs.retention.periods import Periods
from durable_jobs.retention.purging import Purged, purge
from durable_jobs.retention.recording import PurgeRecord, recorded
from durable_jobs.retention.running import PurgeRun, purge_run
from durable_jobs.retention.verifying import Verdict, verify
from durable_jobs.retention.walking import Budget

__all__ = [
    "Budget",
    "Look",
    "Periods",
    "PurgeRecord",
    "PurgeRun",
    "Purged",
    "RedisPurged",
    "TenantLook",
    "Verdict",
    "look",
    "purge",
    "purge_redis",
    "purge_run",
    "recorded",
    "verify",
]
