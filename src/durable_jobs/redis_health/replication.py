"""Is the server what it is expected to be, and does the link to its primary hold?"""

from __future__ import annotations

from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown, warning
from durable_jobs.redis_health.session import read_info
from durable_jobs.redis_health.target import RedisTarget
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.wire import Wire

ROLES = {"master": "primary", "slave": "replica"}


async def check_role(wire: Wire, target: RedisTarget) -> list[CheckResult]:
    """Role and replication link; unknown when the user may see neither INFO nor ROLE."""
    try:
        info = await _read(wire)
    except Trouble as trouble:
        return [
            unknown(check, trouble.kind, trouble.reason) for check in (CheckName.ROLE, CheckName.REPLICATION)
        ]
    role = ROLES.get(info.get("role", ""), "unknown")
    return [_judge_role(role, target), _judge_link(role, info)]


async def _read(wire: Wire) -> dict[str, str]:
    try:
        info = await read_info(wire, "replication")
    except Trouble as trouble:
        if trouble.kind != "hidden":
            raise
        return await _read_role(wire, trouble)
    if "role" not in info:
        raise Trouble("hidden", "INFO does not tell the role")
    return info


async def _read_role(wire: Wire, hidden: Trouble) -> dict[str, str]:
    match await wire.ask("ROLE"):
        case ["slave", _, _, str(link), *_]:
            return {"role": "slave", "master_link_status": "up" if link == "connected" else "down"}
        case ["master", _, list(replicas), *_]:
            return {"role": "master", "connected_slaves": str(len(replicas))}
    raise hidden


def _judge_role(role: str, target: RedisTarget) -> CheckResult:
    if target.expected_role in ("any", role):
        return ok(CheckName.ROLE, f"this is a {role}", role=role)
    reason = f"this is a {role} where a {target.expected_role} is expected"
    if target.expected_role == "primary":
        return critical(CheckName.ROLE, "unexpected_role", f"{reason}: it takes no writes", role=role)
    return warning(CheckName.ROLE, "unexpected_role", reason, role=role)


def _judge_link(role: str, info: dict[str, str]) -> CheckResult:
    if role == "primary":
        count = int(info.get("connected_slaves", "0"))
        return ok(CheckName.REPLICATION, f"{count} replicas connected", connected_replicas=count)
    if info.get("master_link_status") == "up":
        return ok(CheckName.REPLICATION, "the link to the primary holds")
    if info.get("master_sync_in_progress") == "1":
        return warning(CheckName.REPLICATION, "synchronising", "the replica is copying its primary's data")
    since = info.get("master_link_down_since_seconds", "-1")
    how_long = f" for {since} s" if since.isdecimal() else ""
    return critical(CheckName.REPLICATION, "link_down", f"the link to the primary is broken{how_long}")
