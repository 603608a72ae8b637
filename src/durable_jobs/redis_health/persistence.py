"""Would the data survive a crash of the server?"""

from __future__ import annotations

from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown, warning
from durable_jobs.redis_health.target import RedisTarget

_STATES = ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")


def check_persistence(info: dict[str, str], target: RedisTarget) -> CheckResult:
    """Judge the persistence fields of INFO."""
    if "aof_enabled" not in info:
        return unknown(CheckName.PERSISTENCE, "hidden", "INFO does not tell about persistence")
    aof = info["aof_enabled"] == "1"
    broken = [name for name in _STATES if info.get(name, "ok") != "ok"]
    if broken:
        reason = f"writing to disk failed ({', '.join(broken)})"
        return critical(CheckName.PERSISTENCE, "disk_failed", reason, aof=aof)
    if aof:
        return ok(CheckName.PERSISTENCE, "AOF is on and written", aof=True)
    if not target.expect_persistence:
        return ok(CheckName.PERSISTENCE, "AOF is off; the target does not expect it", aof=False)
    reason = "AOF is off (appendonly no): a crash loses what came after the last snapshot"
    return warning(CheckName.PERSISTENCE, "aof_off", reason, aof=False)
