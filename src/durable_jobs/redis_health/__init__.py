"""Redis, watched: is it there, closed to strangers, encrypted, fast, roomy, writable and durable?"""

from durable_jobs.redis_health.address import TlsOptions
from durable_jobs.redis_health.announce import announce, report_loss, reporting_loss
from durable_jobs.redis_health.errors import InsecureRedisURL, InvalidRedisTarget
from durable_jobs.redis_health.examine import examine
from durable_jobs.redis_health.results import CheckName, CheckResult, HealthReport, Outcome, Severity
from durable_jobs.redis_health.target import (
    HealthLimits,
    RedisTarget,
    refuse_insecure_url,
    target_of_settings,
)

__all__ = [
    "CheckName",
    "CheckResult",
    "HealthLimits",
    "HealthReport",
    "InsecureRedisURL",
    "InvalidRedisTarget",
    "Outcome",
    "RedisTarget",
    "Severity",
    "TlsOptions",
    "announce",
    "examine",
    "refuse_insecure_url",
    "report_loss",
    "reporting_loss",
    "target_of_settings",
]
