"""A sha256 digest as the archive writes it: 64 lower-case hexadecimal digits, so it is safe in a path."""

from __future__ import annotations

import re

from durable_jobs.documents.errors import InvalidDigest

PATTERN = r"^[0-9a-f]{64}$"


def checked_digest(sha256: str) -> str:
    """Return `sha256` unchanged.

    Raises:
        InvalidDigest: it is not 64 lower-case hexadecimal digits.
    """
    if not re.fullmatch(PATTERN, sha256) or len(sha256) != 64:
        raise InvalidDigest(f"sha256 {sha256[:80]!r}: write it as 64 lower-case hexadecimal digits")
    return sha256
