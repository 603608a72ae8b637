"""GET /metrics: figures for Prometheus over all tenants, for people on duty; no tenant is named in them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from durable_jobs.api.callers import Operator
from durable_jobs.metrics import Metrics

router = APIRouter(tags=["health"])

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The figures."}
}


@router.get("/metrics", response_class=Response, responses=_TEXT)
async def metrics(
    request: Request,
    caller: Operator,  # noqa: ARG001 -- its scope is checked
    accept: Annotated[str, Header()] = "",
) -> Response:
    """Return the figures as Prometheus reads them: by queue and job type, over all tenants.

    It answers also while the database is away; `durable_jobs_up` is 0 then.
    """
    measured: Metrics = request.app.state.metrics
    exposition = await measured.scrape(accept)
    return Response(exposition.body, media_type=None, headers={"Content-Type": exposition.content_type})
