"""Is a password needed? Proved by commands that come without one.

AUTH being accepted proves nothing: a server without a password accepts any for the default user.
"""

from __future__ import annotations

from datetime import timedelta

from durable_jobs.redis_health.attempts import ask_without_password
from durable_jobs.redis_health.deadline import PROBE_BUDGET, Deadline
from durable_jobs.redis_health.results import CheckName, CheckResult, critical, ok, unknown, warning
from durable_jobs.redis_health.target import RedisTarget
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.wire import Refusal, Reply

# Replies that do not show whether the client counts as authenticated: "unknown command" comes first.
_INCONCLUSIVE = {"ERR"}


async def check_authentication(target: RedisTarget, *, budget: timedelta = PROBE_BUDGET) -> list[CheckResult]:
    """Try commands without a password: auth."""
    deadline = Deadline(budget)
    try:
        replies = await ask_without_password(target.address, deadline, f"{target.key_prefix}unauthenticated")
    except Trouble as trouble:
        return [unknown(CheckName.AUTH, trouble.kind, f"could not be tried: {trouble.reason}")]
    return [_judge(target, replies)]


def _judge(target: RedisTarget, replies: dict[str, Reply]) -> CheckResult:
    codes = {name: reply.code if isinstance(reply, Refusal) else "" for name, reply in replies.items()}
    accepted = [
        name for name, code in codes.items() if code not in {"NOAUTH", "NOPERM", "DENIED"} | _INCONCLUSIVE
    ]
    if "DENIED" in codes.values():
        return _open(
            target, "protected_mode", "the server has no password; protected mode shuts out other hosts only"
        )
    if accepted:
        return _open(target, "open", f"{' and '.join(accepted)} without a password were answered")
    if "NOAUTH" in codes.values():
        return ok(CheckName.AUTH, "commands without a password are refused", enforced=True)
    if "NOPERM" in codes.values():
        reason = (
            f"the default user needs no password; its ACL refused {', '.join(codes)}, other commands may work"
        )
        return _unless_development(
            target, warning(CheckName.AUTH, "default_user_open", reason, enforced=False)
        )
    return unknown(CheckName.AUTH, "inconclusive", f"the server does not know {', '.join(codes)}")


def _open(target: RedisTarget, kind: str, reason: str) -> CheckResult:
    return _unless_development(target, critical(CheckName.AUTH, kind, reason, enforced=False))


def _unless_development(target: RedisTarget, result: CheckResult) -> CheckResult:
    if target.security_required:
        return result
    return ok(CheckName.AUTH, f"{result.reason}; {target.environment} does not require one", enforced=False)
