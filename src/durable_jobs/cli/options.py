"""What `submit` was asked for, beside the requests themselves."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, Self

from durable_jobs.cli import arguments
from durable_jobs.errors import BadInput


class SubmitOptions(NamedTuple):
    """What holds for every request of the call."""

    job_type: str
    tenant: str
    idempotency_key: str | None
    correlation_id: str | None
    priority: int
    run_at: datetime | None
    as_json: bool


class WaitOptions(NamedTuple):
    """How long, and for what, to wait."""

    chain: bool
    timeout: timedelta | None

    @classmethod
    def of(cls, wait: bool, chain: bool, timeout: str | None) -> Self | None:
        """Read the options, or None when nobody waits.

        Raises:
            BadInput: an option that means nothing without `--wait`.
        """
        if wait:
            return cls(chain, arguments.duration("--wait-timeout", timeout) if timeout else None)
        for option, given in (("--chain", chain), ("--wait-timeout", timeout)):
            if given:
                raise BadInput(f"{option} says how to wait: add --wait")
        return None
