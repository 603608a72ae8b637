"""Homes for clusters: one that the server's account can enter, and one that (for root) it cannot."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_jobs.embedded import PostgresCluster

FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB"}


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "home"


@pytest.fixture
def cluster(home: Path) -> Iterator[PostgresCluster]:
    with PostgresCluster(home, settings=FAST) as cluster:
        yield cluster
