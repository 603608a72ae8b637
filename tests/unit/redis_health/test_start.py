"""Outside development the product does not start with a Redis that lacks TLS or a password."""

from __future__ import annotations

import pytest

from durable_jobs.redis_health import InsecureRedisURL, InvalidRedisTarget
from durable_jobs.settings import Settings

SETTING = "DURABLE_JOBS_REDIS_URL"


def start(monkeypatch: pytest.MonkeyPatch, environment: str, url: str) -> Settings:
    """Load the settings as every entry point does."""
    monkeypatch.setenv(SETTING, url)
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", environment)
    return Settings.load()


@pytest.mark.parametrize("environment", ["staging", "production"])
@pytest.mark.parametrize(
    ("url", "missing"),
    [
        ("rediss://redis.example", ["a password"]),
        ("rediss://alice@redis.example", ["a password"]),
        ("redis://:s3cr3t@redis.example", ["TLS"]),
        ("redis://redis.example", ["TLS", "a password"]),
    ],
)
def test_t6_a_redis_without_auth_or_tls_is_refused(
    monkeypatch: pytest.MonkeyPatch, environment: str, url: str, missing: list[str]
) -> None:
    with pytest.raises(InsecureRedisURL, match=SETTING) as caught:
        start(monkeypatch, environment, url)
    message = str(caught.value)
    assert all(f"without {what}" in message for what in missing)
    assert environment in message
    assert "s3cr3t" not in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ("production", "rediss://:s3cr3t@redis.example"),
        ("staging", "rediss://alice:s3cr3t@redis.example:6380/1?ssl_ca_certs=/ca.pem"),
        ("development", "redis://localhost"),
    ],
)
def test_a_redis_with_both_or_in_development_is_accepted(
    monkeypatch: pytest.MonkeyPatch, environment: str, url: str
) -> None:
    assert start(monkeypatch, environment, url).redis_url is not None


def test_a_url_that_cannot_be_read_is_refused_in_development_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRedisTarget, match=SETTING):
        start(monkeypatch, "development", "redis://:s3cr3t@host:port")
