"""An authority and servers for the tests of the Redis checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.redis.certificates import Authority
from tests.integration.redis.servers import RedisServer


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A certificate authority of the test's own."""
    return Authority(tmp_path)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis with a password and AOF, without TLS."""
    with RedisServer("--requirepass", "invented", "--appendonly", "yes") as running:
        yield running
