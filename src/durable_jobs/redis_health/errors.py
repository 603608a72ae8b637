"""What can be wrong with a Redis target before anything is tried; no message ever holds the URL itself."""

from __future__ import annotations

from durable_jobs.errors import BadInput


class InvalidRedisTarget(BadInput):
    """The Redis target cannot be understood: its URL, its TLS options or its name."""


class InsecureRedisURL(BadInput):
    """Outside development a Redis URL needs TLS and a password."""
