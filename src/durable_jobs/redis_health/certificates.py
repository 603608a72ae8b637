"""Is the certificate one to trust, for this host, and for how long?

Switching the verification off is allowed and is a finding of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime

from durable_jobs.redis_health import tls
from durable_jobs.redis_health.attempts import describe
from durable_jobs.redis_health.deadline import Deadline
from durable_jobs.redis_health.results import (
    CheckName,
    CheckResult,
    Fact,
    Outcome,
    Severity,
    ok,
    unknown,
    warning,
)
from durable_jobs.redis_health.target import HealthLimits, RedisTarget
from durable_jobs.redis_health.trouble import Trouble
from durable_jobs.redis_health.wire import open_wire

_BAD_CERTIFICATE = {"tls_untrusted", "tls_host_mismatch", "tls_expired", "tls_not_yet_valid"}


async def check_certificate(target: RedisTarget, limits: HealthLimits, deadline: Deadline) -> CheckResult:
    """Shake hands as the target's options say and judge the certificate."""
    address = target.address
    if not address.tls:
        return unknown(
            CheckName.CERTIFICATE, "not_applicable", "the URL says redis://: there is no certificate"
        )
    try:
        wire = await open_wire(address, deadline, context=tls.client_context(address.tls_options))
        try:
            certificate = describe(wire).certificate
        finally:
            wire.close()
    except Trouble as trouble:
        return _judge_trouble(trouble)
    return _judge(target, certificate, limits, datetime.now(UTC))


def _judge_trouble(trouble: Trouble) -> CheckResult:
    if trouble.kind not in _BAD_CERTIFICATE:
        return unknown(CheckName.CERTIFICATE, trouble.kind, f"no certificate was seen: {trouble.reason}")
    # The connection fails for this very reason; one cause is announced once.
    return CheckResult(
        CheckName.CERTIFICATE,
        Outcome.FAILED,
        trouble.kind,
        trouble.reason,
        Severity.CRITICAL,
        cause=CheckName.CONNECTION,
    )


def _judge(
    target: RedisTarget, certificate: tls.Certificate | None, limits: HealthLimits, now: datetime
) -> CheckResult:
    facts: dict[str, Fact] = {}
    if certificate:
        facts = {"expires_at": certificate.expires_at.isoformat(), "subject": certificate.subject}
    options = target.address.tls_options
    if not options.verify:
        return warning(
            CheckName.CERTIFICATE, "verification_off", "the target's options switch verification off", **facts
        )
    if not options.check_host_name:
        reason = "the target's options switch the check of the host name off"
        return warning(CheckName.CERTIFICATE, "host_name_not_checked", reason, **facts)
    if certificate is None:
        return ok(CheckName.CERTIFICATE, "the certificate was verified; its end cannot be read")
    rest = certificate.expires_at - now
    if rest <= limits.certificate:
        reason = f"the certificate ends in {rest.days} days, on {certificate.expires_at:%Y-%m-%d}"
        return warning(CheckName.CERTIFICATE, "expiring", reason, **facts)
    return ok(CheckName.CERTIFICATE, f"verified, valid until {certificate.expires_at:%Y-%m-%d}", **facts)
