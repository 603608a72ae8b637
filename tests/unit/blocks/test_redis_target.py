"""The block `redis-target` becomes the same target that its fields or its URL describe."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect_redis.blocks import RedisDatabase

from durable_jobs.blocks.redis_target import RedisTargetBlock
from durable_jobs.redis_health import InvalidRedisTarget, TlsOptions


def test_it_is_a_redis_database_of_prefect_with_its_own_slug() -> None:
    assert issubclass(RedisTargetBlock, RedisDatabase)
    assert RedisTargetBlock.get_block_type_slug() == "redis-target"
    assert RedisTargetBlock.get_description()
    assert 'RedisTargetBlock.load("BLOCK_NAME")' in (RedisTargetBlock.get_code_example() or "")


def test_every_field_tells_people_what_it_is() -> None:
    assert all(field.description for field in RedisTargetBlock.model_fields.values())


def test_fields_become_a_url_whatever_the_password() -> None:
    block = RedisTargetBlock(
        host="redis.example", port=6380, db=2, username="al:ice", password="p@ss/w#rd?", ssl=True
    )
    address = block.to_target("jobs", "production").address
    assert (address.host, address.port, address.db, address.tls) == ("redis.example", 6380, 2, True)
    assert (address.username, address.password) == ("al:ice", "p@ss/w#rd?")
    assert "p@ss" not in repr(block)


def test_an_ipv6_host_becomes_a_url() -> None:
    assert RedisTargetBlock(host="::1").to_target("jobs", "development").address.host == "::1"


def test_a_url_with_tls_options_of_its_own_is_kept_unless_a_field_says_otherwise() -> None:
    url = "rediss://:pw@redis.example?ssl_cert_reqs=none"
    kept = RedisTargetBlock(connection_url=url).to_target("jobs", "production")
    replaced = RedisTargetBlock(connection_url=url, ca_file=Path("/ca.pem")).to_target("jobs", "production")
    assert kept.address.tls_options == TlsOptions(verify=False)
    assert replaced.address.tls_options == TlsOptions(ca_file=Path("/ca.pem"))


def test_the_environment_is_the_one_of_the_settings_unless_the_block_names_one() -> None:
    assert RedisTargetBlock().to_target("jobs", "staging").environment == "staging"
    assert RedisTargetBlock(environment="production").to_target("jobs", "staging").environment == "production"


def test_sentinels_are_refused_with_the_way_out() -> None:
    block = RedisTargetBlock(connection_url="redis+sentinel://sentinel.example:26379/primary")
    with pytest.raises(InvalidRedisTarget, match="name each server itself"):
        block.to_target("jobs", "development")
