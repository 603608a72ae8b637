"""How full is the server, what happens when it is full, does it take writes, and does it keep them?

Writes are really tried, on one key of our own prefix that ends by itself.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from durable_jobs.redis_health.deadline import PROBE_BUDGET, Deadline
from durable_jobs.redis_health.persistence import check_persistence
from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown, warning
from durable_jobs.redis_health.session import read_info, session
from durable_jobs.redis_health.target import HealthLimits, RedisTarget
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.writes import try_write

_NEAR = 0.05  # a memory warning ends this far below its limit
_MIB = 1 << 20


async def check_memory(
    target: RedisTarget, *, limits: HealthLimits | None = None, budget: timedelta = PROBE_BUDGET
) -> list[CheckResult]:
    """Read the figures and try a write: memory, eviction, writes, persistence."""
    deadline = Deadline(budget)
    checks = (CheckName.MEMORY, CheckName.EVICTION, CheckName.WRITES, CheckName.PERSISTENCE)
    found: list[CheckResult] = []
    try:
        async with session(target, deadline) as wire:
            found.append(writes := await try_write(wire, target))
            info = await read_info(wire)
            full = writes.kind == "out_of_memory"
            found.extend(judge_memory(info, limits or HealthLimits(), full=full))
            found.append(check_persistence(info, target))
    except Trouble as trouble:
        known = {result.check for result in found}
        found.extend(unknown(check, trouble.kind, trouble.reason) for check in checks if check not in known)
    return found


def judge_memory(info: dict[str, str], limits: HealthLimits, *, full: bool) -> list[CheckResult]:
    """Judge the figures of INFO; `full` tells that a write was refused for lack of memory."""
    policy = info.get("maxmemory_policy")
    return [_judge_room(info, policy, limits, full=full), _judge_policy(policy)]


def _judge_room(info: dict[str, str], policy: str | None, limits: HealthLimits, *, full: bool) -> CheckResult:
    used, most = _number(info, "used_memory"), _number(info, "maxmemory")
    if full:
        reason = "the memory is full and nothing is evicted: a write was refused"
        return critical(CheckName.MEMORY, "full", reason, used_bytes=used, maxmemory_bytes=most)
    if used is None or most is None:
        return unknown(CheckName.MEMORY, "hidden", "INFO does not tell used_memory and maxmemory")
    if most == 0:
        reason = f"{used / _MIB:.1f} MiB used; maxmemory is 0, so there is no share to judge"
        return ok(CheckName.MEMORY, reason, used_bytes=used, maxmemory_bytes=0, share=None)
    # Redis itself leaves replication and AOF buffers out when it compares with maxmemory.
    share = round((used - (_number(info, "mem_not_counted_for_evict") or 0)) / most, 4)
    facts = {"used_bytes": used, "maxmemory_bytes": most, "share": share}
    reason = f"{share:.0%} of {most / _MIB:.1f} MiB used"
    if share >= 1 and policy == "noeviction":
        return critical(CheckName.MEMORY, "full", f"{reason}, and nothing is evicted", **facts)
    if share > limits.memory:
        return warning(CheckName.MEMORY, "high", f"{reason}, more than {limits.memory:.0%}", **facts)
    return replace(ok(CheckName.MEMORY, reason, **facts), near=share > limits.memory - _NEAR)


def _judge_policy(policy: str | None) -> CheckResult:
    if policy is None:
        return unknown(CheckName.EVICTION, "hidden", "INFO does not tell the eviction policy")
    if policy == "noeviction":
        return ok(CheckName.EVICTION, "nothing is evicted", policy=policy)
    what = "keys with an expiry" if policy.startswith("volatile") else "any key, waiting jobs included"
    reason = f"the policy {policy} deletes {what} when memory is short"
    return warning(CheckName.EVICTION, "evicting", reason, policy=policy)


def _number(info: dict[str, str], name: str) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isdecimal() else None
