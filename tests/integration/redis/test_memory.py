"""Memory, eviction, writes and persistence; what ACLs hide is unknown, never a failure."""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest

from durable_jobs.redis_health import CheckName, CheckResult, Outcome, RedisTarget, Severity
from durable_jobs.redis_health.memory import check_memory, judge_memory
from durable_jobs.redis_health.target import HealthLimits
from tests.integration.redis.servers import BUSY, RedisServer

FULL_CHECK = (CheckName.MEMORY, CheckName.EVICTION, CheckName.WRITES, CheckName.PERSISTENCE)


async def look(
    server: RedisServer, user: str = ":invented@", db: int = 0, **options: Any
) -> dict[CheckName, CheckResult]:
    """Check the memory, within two seconds; each check must have an answer."""
    target = RedisTarget(name="test", url=f"redis://{user}127.0.0.1:{server.port}/{db}", **options)  # type: ignore[arg-type]
    started = time.monotonic()
    results = {result.check: result for result in await check_memory(target)}
    assert time.monotonic() - started < 2 + BUSY
    assert set(results) == set(FULL_CHECK)
    return results


def fill(server: RedisServer, share: float) -> None:
    """Bring used_memory to a share of maxmemory, above or below 1."""
    server.admin("SET", "filling", "x" * 8_000_000, password="invented")
    used = server.admin("INFO", "memory", password="invented")["used_memory"]
    server.admin("CONFIG", "SET", "maxmemory", str(int(used / share)), password="invented")


async def test_maxmemory_0_is_no_division_and_no_alarm(server: RedisServer) -> None:
    results = await look(server)
    assert {result.outcome for result in results.values()} == {Outcome.OK}
    assert results[CheckName.MEMORY].facts["share"] is None
    assert "maxmemory is 0" in results[CheckName.MEMORY].reason


async def test_over_80_percent_warns(server: RedisServer) -> None:
    fill(server, 0.9)
    memory = (await look(server))[CheckName.MEMORY]
    assert (memory.kind, memory.severity) == ("high", Severity.WARNING)
    assert float(memory.facts["share"] or 0) == pytest.approx(0.9, abs=0.05)


async def test_half_full_is_ok(server: RedisServer) -> None:
    fill(server, 0.5)
    memory = (await look(server))[CheckName.MEMORY]
    assert (memory.outcome, memory.near) == (Outcome.OK, False)


@pytest.mark.parametrize(
    ("share", "outcome", "near"), [(810, "failed", False), (780, "ok", True), (740, "ok", False)]
)
def test_a_warning_ends_well_below_its_limit(share: int, outcome: str, near: bool) -> None:
    info = {"used_memory": str(share), "maxmemory": "1000", "maxmemory_policy": "noeviction"}
    memory, _ = judge_memory(info, HealthLimits(), full=False)
    assert (memory.outcome, memory.near) == (outcome, near)


def test_buffers_that_redis_does_not_count_are_not_counted() -> None:
    info = {"used_memory": "900", "mem_not_counted_for_evict": "400", "maxmemory": "1000"}
    memory, _ = judge_memory(info, HealthLimits(), full=False)
    assert memory.facts["share"] == 0.5


async def test_full_with_noeviction_is_critical_by_a_write_that_was_tried(server: RedisServer) -> None:
    fill(server, 1.2)
    results = await look(server)
    memory, writes = results[CheckName.MEMORY], results[CheckName.WRITES]
    assert (memory.kind, memory.severity) == ("full", Severity.CRITICAL)
    assert (writes.kind, writes.cause) == ("out_of_memory", CheckName.MEMORY)


async def test_the_key_that_is_written_has_our_prefix_and_ends_by_itself(server: RedisServer) -> None:
    await look(server, key_prefix="own:")
    assert server.admin("KEYS", "*", password="invented") == [b"own:write"]
    assert 0 < server.admin("PTTL", "own:write", password="invented") <= 10_000


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_an_evicting_policy_has_its_own_warning(server: RedisServer, policy: str) -> None:
    server.admin("CONFIG", "SET", "maxmemory-policy", policy, password="invented")
    results = await look(server)
    eviction = results[CheckName.EVICTION]
    assert (eviction.kind, eviction.severity, eviction.facts["policy"]) == (
        "evicting",
        Severity.WARNING,
        policy,
    )
    assert results[CheckName.MEMORY].outcome is Outcome.OK


async def test_what_acls_hide_is_unknown_with_its_reason(server: RedisServer) -> None:
    server.admin("ACL", "SETUSER", "shy", "on", ">pw", "~jobs:*", "+@all", "-info", password="invented")
    results = await look(server, "shy:pw@")
    assert {result.outcome for result in results.values()} == {Outcome.UNKNOWN}
    assert "may not write" in results[CheckName.WRITES].reason
    assert "INFO is hidden" in results[CheckName.MEMORY].reason


def test_what_a_provider_leaves_out_is_unknown() -> None:
    assert {result.outcome for result in judge_memory({}, HealthLimits(), full=False)} == {Outcome.UNKNOWN}


async def test_another_database_is_selected_and_a_missing_one_is_named(server: RedisServer) -> None:
    assert (await look(server, db=3))[CheckName.WRITES].outcome is Outcome.OK
    assert (await look(server, db=99))[CheckName.WRITES].kind == "no_such_database"


async def test_a_failed_snapshot_refuses_writes_and_is_named() -> None:
    with RedisServer("--requirepass", "invented", "--appendonly", "no") as server:
        server.admin("CONFIG", "SET", "save", "60 1", password="invented")
        elsewhere = server.folder / "gone"
        elsewhere.mkdir()
        server.admin("CONFIG", "SET", "dir", str(elsewhere), password="invented")
        shutil.rmtree(elsewhere)
        server.admin("SET", "a", "b", password="invented")
        server.admin("BGSAVE", password="invented")
        deadline = time.monotonic() + 10
        while server.admin("INFO", "persistence", password="invented")["rdb_last_bgsave_status"] == "ok":
            assert time.monotonic() < deadline
        results = await look(server)
    assert results[CheckName.WRITES].kind == "snapshot_failed"
    assert (results[CheckName.PERSISTENCE].kind, results[CheckName.PERSISTENCE].severity) == (
        "disk_failed",
        Severity.CRITICAL,
    )


async def test_aof_off_warns_unless_it_is_not_expected() -> None:
    with RedisServer("--requirepass", "invented") as server:
        expected = (await look(server))[CheckName.PERSISTENCE]
        not_expected = (await look(server, expect_persistence=False))[CheckName.PERSISTENCE]
    assert (expected.kind, expected.severity) == ("aof_off", Severity.WARNING)
    assert not_expected.outcome is Outcome.OK


async def test_too_few_replicas_refuse_writes(server: RedisServer) -> None:
    server.admin("CONFIG", "SET", "min-replicas-to-write", "1", password="invented")
    writes = (await look(server))[CheckName.WRITES]
    assert (writes.kind, writes.severity) == ("too_few_replicas", Severity.CRITICAL)


async def test_a_cluster_that_is_down_is_named() -> None:
    with RedisServer("--requirepass", "invented", "--cluster-enabled", "yes") as server:
        writes = (await look(server))[CheckName.WRITES]
    assert (writes.kind, writes.severity) == ("cluster_down", Severity.CRITICAL)
