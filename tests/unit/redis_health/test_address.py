"""A Redis URL is taken apart as redis-py would, and no error ever repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.asyncio.connection import parse_url

from durable_jobs.redis_health import InvalidRedisTarget, RedisTarget, TlsOptions
from durable_jobs.redis_health.address import parse_redis_url


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://:invented@redis.example:7000/3",
        "rediss://alice:p%40ss%2Fword@redis.example:6380",
        "redis://alice:pw@[::1]:6379/1",
        "redis://redis.example?db=2",
    ],
)
def test_a_url_means_what_it_means_to_redis_py(url: str) -> None:
    address, theirs = parse_redis_url(url), parse_url(url)
    assert address.host == theirs.get("host", "localhost")
    assert address.port == theirs.get("port", 6379)
    assert address.db == int(theirs.get("db", 0))
    assert (address.username, address.password) == (theirs.get("username"), theirs.get("password"))
    assert address.tls is url.startswith("rediss")


def test_tls_options_are_read_from_the_query() -> None:
    query = "ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem&ssl_cert_reqs=none&ssl_check_hostname=false"
    address = parse_redis_url(f"rediss://h?{query}")
    expected = TlsOptions(
        Path("/ca.pem"), Path("/c.pem"), Path("/k.pem"), verify=False, check_host_name=False
    )
    assert address.tls_options == expected


def test_verification_is_on_unless_it_is_switched_off() -> None:
    assert parse_redis_url("rediss://h").tls_options == TlsOptions()
    assert parse_redis_url("rediss://h?ssl_cert_reqs=optional").tls_options.verify


@pytest.mark.parametrize(
    ("url", "way_out"),
    [
        ("redis://:s3cr3t/word@host", "%-encoded"),
        ("redis://user:s3cr3t@host:99999", "port"),
        ("redis://:s3cr3t@host:port", "port"),
        ("redis://:s3cr3t@[::1", "not a URL"),
        ("redis://:s3cr3t@host/db", "number"),
        ("http://:s3cr3t@host", "scheme"),
        ("redis+sentinel://:s3cr3t@host/primary", "not watched"),
        ("unix://:s3cr3t@/tmp/socket", "not watched"),
        ("rediss://:s3cr3t@host?ssl_ciphers=x", "ssl_ciphers"),
        ("s3cr3t", "scheme"),
        ("", "scheme"),
    ],
)
def test_what_cannot_be_read_is_refused_without_repeating_it(url: str, way_out: str) -> None:
    with pytest.raises(InvalidRedisTarget, match=f"url of the Redis target 'jobs'.*{way_out}") as caught:
        RedisTarget(name="jobs", url=url)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.exit_code == 2


def test_the_target_never_shows_its_password() -> None:
    target = RedisTarget(name="jobs", url="rediss://alice:s3cr3t@redis.example")
    shown = f"{target!r} {target} {target.address!r} {target.model_dump_json()} {target.address.endpoint}"
    assert "s3cr3t" not in shown
    assert target.address.password == "s3cr3t"


def test_options_of_the_target_replace_those_of_the_url() -> None:
    target = RedisTarget(name="jobs", url="rediss://h?ssl_cert_reqs=none", tls=TlsOptions())
    assert target.address.tls_options.verify
