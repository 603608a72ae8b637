"""How failures of well-known kinds of work are treated, when their declaration does not say.

A policy decides how often the dead-letter flow retries; a job type of the name takes it as its default.
"""

from __future__ import annotations

from typing import NamedTuple


class Policy(NamedTuple):
    """How often a failed job is retried, if at all."""

    max_retries: int
    retryable: bool = True


ELSE = Policy(3)
POLICIES = {
    "DOCUMENT_ARCHIVE": Policy(3),
    "BLOCKCHAIN_ANCHOR": Policy(5),
    "BLOCKCHAIN_VERIFY": Policy(3),
    "EXPORT_GLACIER": Policy(5),
    "EXPORT_ZIP": Policy(3),
    "PURGE_LEGAL": Policy(2),
    "PURGE_USER_REQUEST": Policy(3),
    "PRE_TRANSFER_B2B2C": Policy(3),
    "TRANSFER_COMPLETE": Policy(0, retryable=False),
    "NOTIFICATION_EMAIL": Policy(2),
    "NOTIFICATION_WEBHOOK": Policy(3),
}


def policy_of(job_type: str) -> Policy:
    """Return the policy of a job type by its name."""
    return POLICIES.get(job_type, ELSE)
