"""POST /jobs: registers one job and answers 202; it waits for no worker."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Request, Response
from fastapi.openapi.models import Example

from durable_jobs.api.access import Access, AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Caller, Submitter
from durable_jobs.api.models import SubmitJob, SubmittedJob
from durable_jobs.api.problems import FieldFault, Refusal
from durable_jobs.api.request_log import name_job
from durable_jobs.jobs import NewJob
from durable_jobs.registration import prepare, register_all

router = APIRouter(tags=["jobs"])

LARGE = 100_000
"""Characters of a payload that is validated beside the event loop, so that others need not wait for it."""
REPLAYED = {"Idempotent-Replayed": "true"}
_ARCHIVE = {"source": "/data/letter.pdf", "store": "/archive"}
_EXAMPLES: dict[str, Example] = {
    "archive a document": {"value": {"type": "DOCUMENT_ARCHIVE", "data": _ARCHIVE}},
    "once, first in the queue, and not before a time": {
        "value": {
            "type": "DOCUMENT_ARCHIVE",
            "data": _ARCHIVE,
            "idempotencyKey": "letter-2030-01-31",
            "correlationId": "order-4711",
            "priority": 10,
            "runAt": "2030-01-31T08:00:00+01:00",
        }
    },
}


@router.post(
    "/jobs",
    status_code=202,
    response_model=SubmittedJob,
    responses={
        202: {
            "headers": {
                "Location": {"description": "The job.", "schema": {"type": "string"}},
                "Idempotent-Replayed": {
                    "description": "`true` when the key was known and no job was made.",
                    "schema": {"type": "string"},
                },
            }
        }
    },
)
async def submit_job(
    body: Annotated[SubmitJob, Body(openapi_examples=_EXAMPLES)],
    request: Request,
    caller: Submitter,
    access: AppAccess,
    idempotency_key: Annotated[
        str | None, Header(description="As the field `idempotencyKey`; given both ways, they must be equal.")
    ] = None,
) -> Response:
    """Register a job. It is stored when the answer comes, and executed when its turn comes.

    With an idempotency key that is known in the tenant, the answer names the job that has it now (the last
    retry of its chain). A key is free again when its job was purged, 30 days after its end by default.
    """
    key = _key(body, request, idempotency_key)
    await access.rate_limit.take(caller.tenant)
    job = await _prepared(body, key, caller, access)
    ((made, created),) = await register_all(await access.store(), [job])
    name_job(made.job_id, made.correlation_id)
    headers = {"Location": f"{request.scope.get('root_path', '')}/jobs/{made.job_id}"}
    document = {"jobId": str(made.job_id), "status": str(made.state)}
    return answer_json(document, status=202, headers=headers if created else headers | REPLAYED)


async def _prepared(body: SubmitJob, key: str | None, caller: Caller, access: Access) -> NewJob:
    try:
        # As JSON text, so that the model reads a request from here exactly as one from the command line.
        text = json.dumps(body.data)
    except (RecursionError, ValueError) as error:
        raise Refusal(
            400,
            "invalid-payload",
            "data is nested too deep",
            errors=[FieldFault(field="data", kind="object", message="it is nested too deep")],
        ) from error

    def work() -> NewJob:
        return prepare(
            access.registry,
            access.settings,
            body.type,
            text,
            idempotency_key=key,
            correlation_id=body.correlation_id,
            priority=body.priority,
            run_at=body.run_at,
            submitted_by=caller.subject,
        )

    return await asyncio.to_thread(work) if len(text) > LARGE else work()


def _key(body: SubmitJob, request: Request, header: str | None) -> str | None:
    given: list[Any] = request.headers.getlist("idempotency-key")
    if body.idempotency_key is not None:
        given.append(body.idempotency_key)
    if len(set(given)) > 1:
        raise Refusal(
            400,
            "idempotency-keys-differ",
            "two different idempotency keys are given; give it once: in the header Idempotency-Key or in the"
            " field idempotencyKey",
            errors=[
                FieldFault(
                    field="idempotencyKey",
                    kind="string",
                    message="it differs from the header Idempotency-Key",
                )
            ],
        )
    return body.idempotency_key if header is None else header
