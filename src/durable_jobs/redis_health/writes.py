"""Does the server take a write? Only a try can tell: full memory, a failed disk, lost replicas refuse it."""

from __future__ import annotations

from dataclasses import replace

from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown
from durable_jobs.redis_health.session import refused
from durable_jobs.redis_health.target import RedisTarget
from durable_jobs.redis_health.wire import Refusal, Wire

_KEEP_MILLISECONDS = 10_000

_REFUSALS = {
    "OOM": ("out_of_memory", "a write was refused: the memory is full", CheckName.MEMORY),
    "READONLY": ("read_only", "a write was refused: this is a replica", CheckName.ROLE),
    "MISCONF": (
        "snapshot_failed",
        "a write was refused: the last snapshot or AOF write to disk failed",
        None,
    ),
    "NOREPLICAS": ("too_few_replicas", "a write was refused: too few replicas are in reach", None),
    "CLUSTERDOWN": ("cluster_down", "a write was refused: the cluster is down", None),
}
_ELSEWHERE = {"MOVED", "ASK"}


async def try_write(wire: Wire, target: RedisTarget) -> CheckResult:
    """Write the target's own key, which ends after 10 seconds.

    Raises:
        Trouble: the conversation ended.
    """
    if target.expected_role == "replica":
        return unknown(CheckName.WRITES, "not_tried", "writes are not tried on a replica")
    db = target.address.db
    if db and isinstance(reply := await wire.ask("SELECT", str(db)), Refusal):
        return _judge_selection(db, reply)
    key = f"{target.key_prefix}write"
    reply = await wire.ask("SET", key, "1", "PX", str(_KEEP_MILLISECONDS))
    if not isinstance(reply, Refusal):
        return ok(CheckName.WRITES, "a write was accepted")
    return _judge(key, reply)


def _judge_selection(db: int, reply: Refusal) -> CheckResult:
    if reply.code == "NOPERM":
        return unknown(CheckName.WRITES, "not_permitted", f"the user may not select database {db}")
    if reply.code == "ERR":
        return critical(CheckName.WRITES, "no_such_database", f"the server has no database {db}")
    raise refused(reply)


def _judge(key: str, reply: Refusal) -> CheckResult:
    if reply.code == "NOPERM":
        return unknown(CheckName.WRITES, "not_permitted", f"the user may not write the key {key}")
    if reply.code in _ELSEWHERE:
        return unknown(CheckName.WRITES, "elsewhere", f"another node of the cluster holds the key {key}")
    if reply.code in _REFUSALS:
        kind, reason, cause = _REFUSALS[reply.code]
        return replace(critical(CheckName.WRITES, kind, reason), cause=cause)
    raise refused(reply)
