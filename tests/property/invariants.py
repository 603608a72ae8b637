"""What must be true of all rows at any moment, and of any change from one moment to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from durable_jobs.states import TRANSITIONS, JobState, is_terminal

Row = Mapping[str, Any]
Rows = Mapping[UUID, Row]

NEVER_CHANGES = (
    "tenant_id", "job_type", "queue", "priority", "run_at", "payload", "payload_version", "payload_hash",
    "idempotency_key", "correlation_id", "submitted_by", "retry_count", "max_retries", "timeout",
    "parent_job_id", "root_job_id", "replay_of", "created_at",
)  # fmt: skip
_INHERITED = (
    "tenant_id", "job_type", "queue", "priority", "payload", "payload_version", "payload_hash",
    "idempotency_key", "correlation_id", "max_retries", "timeout",
)  # fmt: skip
_TOLD = {JobState.FAILED, JobState.CANCELLED, JobState.RETRIED, JobState.ABANDONED}


def check_rows(rows: Rows) -> None:
    """Check each row, and what rows say of each other."""
    for row in rows.values():
        _check_row(row)
    children = Counter(row["parent_job_id"] for row in rows.values() if row["parent_job_id"])
    assert not children or max(children.values()) == 1, "a job has two children"
    roots = Counter(
        (row["tenant_id"], row["idempotency_key"])
        for row in rows.values()
        if row["idempotency_key"] and not row["parent_job_id"] and not row["replay_of"]
    )
    assert not roots or max(roots.values()) == 1, "two jobs share an idempotency key"
    for row in rows.values():
        if row["parent_job_id"]:
            _check_child(rows[row["parent_job_id"]], row)
        else:
            assert row["root_job_id"] == row["job_id"]
        assert (row["state"] == "RETRIED") == (children[row["job_id"]] == 1), "RETRIED means one child"


def _check_row(row: Row) -> None:
    state = row["state"]
    assert (row["completed_at"] is None) == (state in ("PENDING", "RUNNING"))
    assert state != "RUNNING" or None not in (row["claim_token"], row["executor_id"], row["deadline_at"])
    assert state != "PENDING" or (row["claim_token"] is None and row["executor_id"] is None)
    assert state not in ("FAILED", "RETRIED", "ABANDONED") or row["failed_reason"]
    assert state == "PENDING" or row["pending_shard"] is None, "only waiting jobs are counted"
    assert row["retry_count"] <= row["max_retries"]
    assert state != "SUCCEEDED" or row["result"] is not None


def _check_child(parent: Row, child: Row) -> None:
    assert parent["retry_child_id"] == child["job_id"]
    assert child["retry_count"] == parent["retry_count"] + 1
    assert child["root_job_id"] == parent["root_job_id"]
    for column in _INHERITED:
        assert child[column] == parent[column], f"a retry changed {column}"


def check_change(before: Rows, after: Rows, *, steps: int) -> None:
    """Check what `steps` operations may have done to the rows."""
    assert before.keys() <= after.keys(), "a job vanished"
    for job_id, old in before.items():
        new = after[job_id]
        if is_terminal(JobState(old["state"]), retryable=old["retryable"]):
            assert new == old, "a terminal row changed"
        for column in NEVER_CHANGES:
            assert new[column] == old[column], f"{column} changed"
        assert new["claim_count"] >= old["claim_count"]
        assert new["crash_count"] >= old["crash_count"]
        assert JobState(new["state"]) in _reachable(JobState(old["state"]), steps)
        if old["state"] == new["state"] == "RUNNING" and steps == 1:
            assert new["claim_token"] == old["claim_token"], "a running job changed hands"
    for job_id in after.keys() - before.keys():
        assert steps > 1 or after[job_id]["state"] == "PENDING", "a job was not born waiting"


def _reachable(state: JobState, steps: int) -> set[JobState]:
    reached = {state}
    for _ in range(steps):
        reached |= {following for one in reached for following in TRANSITIONS[one]}
    return reached


def check_told(before: Rows, after: Rows, events: Counter[UUID]) -> None:
    """Check that each change that matters to people was told exactly once, beside late results."""
    for job_id, row in after.items():
        old = before.get(job_id)
        changed = old is not None and old["state"] != row["state"]
        if changed and row["state"] in _TOLD:
            assert events[job_id] == 1, f"{row['state']} was told {events[job_id]} times"


def due_jobs(rows: Rows, moment: datetime) -> set[UUID]:
    """Return the jobs whose whole chain ended before the moment."""
    kept = {
        row["root_job_id"]
        for row in rows.values()
        if row["completed_at"] is None or row["completed_at"] >= moment
    }
    return {job_id for job_id, row in rows.items() if row["root_job_id"] not in kept}


def check_counters(rows: Rows, counted: int, queue: str, max_pending: int) -> None:
    """Check that the book equals the table, and the bound."""
    booked = sum(
        row["queue"] == queue and row["state"] == "PENDING" and row["pending_shard"] is not None
        for row in rows.values()
    )
    assert counted == booked, f"counters say {counted}, the table {booked}"
    assert booked <= max_pending, f"{booked} wait, {max_pending} may"
