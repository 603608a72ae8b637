"""Requests, executors and outcomes as the tests need them: short to write, valid by default."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from durable_jobs.jobs import ClaimedJob, NewJob, Outcome
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Executor, JobsOperator

QUEUE = "work"


def new_job(data: Any = None, **changes: Any) -> NewJob:
    """Return a request of type WORK in the queue `work`."""
    text = json.dumps({} if data is None else data, sort_keys=True)
    job = NewJob(
        job_id=uuid7(),
        job_type="WORK",
        queue=QUEUE,
        max_pending=None,
        payload=text,
        payload_version=1,
        payload_hash=hashlib.sha256(text.encode()).hexdigest(),
        max_retries=3,
        retryable=True,
        timeout=timedelta(hours=1),
    )
    return job._replace(**changes)


async def enter(operator: JobsOperator, *queues: str, **changes: Any) -> UUID:
    """Make a new executor known and return its id."""
    executor = Executor(uuid7(), "host", 1, queues or (QUEUE,))
    await operator.enter_executor(executor._replace(**changes))
    return executor.executor_id


def succeeded(job: ClaimedJob, value: Any = None) -> Outcome:
    """Return the outcome of an execution that went well."""
    return Outcome(job, JobState.SUCCEEDED, json.dumps({"status": "OK", "value": value}))


def failed(job: ClaimedJob, reason: str = "ValueError: no", *, retryable: bool = True) -> Outcome:
    """Return the outcome of an execution that failed."""
    return Outcome(job, JobState.FAILED, None, reason, retryable)
