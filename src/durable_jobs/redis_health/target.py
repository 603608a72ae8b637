"""A Redis to watch: where it is, what it is for, and what is expected of it.

A target in staging or production must enforce TLS and a password; one in development need not.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from durable_jobs.redis_health.address import RedisAddress, TlsOptions, parse_redis_url
from durable_jobs.redis_health.errors import InsecureRedisURL
from durable_jobs.settings import Environment, Settings

ExpectedRole = Literal["primary", "replica", "any"]

SETTING = "DURABLE_JOBS_REDIS_URL"
NOTHING_TO_WATCH = (
    f"No Redis is configured, so none is watched: set {SETTING}, or make a block redis-target and name it."
)


class RedisTarget(BaseModel):
    """One Redis server to watch; several are told apart by `name`.

    Raises:
        InvalidRedisTarget: at construction, when the URL cannot be understood.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=200)
    url: SecretStr
    environment: Environment = "development"
    expected_role: ExpectedRole = "primary"
    expect_persistence: bool = True
    key_prefix: str = "durable-jobs:health:"
    tls: TlsOptions | None = None
    """Replaces the TLS options in the URL's query when given."""

    def model_post_init(self, _context: object) -> None:
        """Refuse a URL that cannot be understood now rather than at the first probe."""
        _ = self.address

    @cached_property
    def address(self) -> RedisAddress:
        """Where the target is, taken from its URL."""
        address = parse_redis_url(
            self.url.get_secret_value(), setting=f"url of the Redis target {self.name!r}"
        )
        return replace(address, tls_options=self.tls) if self.tls else address

    @property
    def security_required(self) -> bool:
        """Whether TLS and authentication must be enforced."""
        return self.environment != "development"


class HealthLimits(BaseModel):
    """From where on a figure is worth a warning; each warning ends only well below its limit."""

    model_config = ConfigDict(frozen=True)

    latency: timedelta = Field(timedelta(milliseconds=100), description="Answer time of a PING that warns")
    memory: float = Field(0.8, gt=0, le=1, description="Share of maxmemory that warns")
    certificate: timedelta = Field(timedelta(days=14), description="Rest of a certificate's life that warns")


def target_of_settings(settings: Settings) -> RedisTarget | None:
    """The Redis that the settings name, or None: Redis is optional."""
    if settings.redis_url is None:
        return None
    return RedisTarget(name="default", url=settings.redis_url, environment=settings.environment)


def refuse_insecure_url(url: SecretStr, environment: Environment, *, setting: str = SETTING) -> None:
    """Check a Redis URL at start: outside development it needs TLS and a password.

    Raises:
        InvalidRedisTarget: the URL cannot be understood.
        InsecureRedisURL: no TLS or no password; the message names the setting and the way out.
    """
    address = parse_redis_url(url.get_secret_value(), setting=setting)
    if environment == "development":
        return
    missing = [] if address.tls else ["TLS (write rediss:// instead of redis://)"]
    if not address.password:
        missing.append("a password (write rediss://user:password@host)")
    if missing:
        raise InsecureRedisURL(
            f"{setting} points to {address.endpoint} without {' and without '.join(missing)};"
            f" in {environment} both are required"
        )
