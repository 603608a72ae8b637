"""What the check at registration believes of jsonb is true of the real one."""

from __future__ import annotations

from typing import Any

from durable_jobs import payloads
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.support.jobs import QUEUE, enter, failed, new_job
from tests.unit.payloads.test_strict_payloads import TYPED, declared, field
from tests.unit.payloads.test_strict_payloads import store as stored_payload


async def test_typed_values_come_back_from_the_first_run_and_from_the_retry(pg_store: PgJobsStore) -> None:
    executor = await enter(pg_store)
    requests: dict[Any, tuple[Any, Any]] = {}
    with job_tenant_scope("acme"):
        for kind, value in TYPED:
            model = field(kind)
            payload = stored_payload(model, model(value=value))
            request = new_job(payload=payload.text, payload_hash=payload.hash)
            await pg_store.register_idempotent([request])
            requests[request.job_id] = model, model(value=value)
        for _ in range(2):
            claimed = (await pg_store.claim(executor, QUEUE, 100)).jobs
            assert len(claimed) == len(TYPED)
            for job in claimed:
                model, expected = requests[job.root_job_id]
                assert payloads.load(declared(model), job.payload, 1) == expected
                again = payloads.load_stored(declared(model), (await pg_store.get(job.job_id)).payload, 1)
                assert again == expected
            await pg_store.finish([failed(job) for job in claimed])
            for job in claimed:
                await pg_store.retry(job.job_id, max_pending=None)
