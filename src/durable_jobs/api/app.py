"""The application: routers, and around them the layers through which every request passes.

From outside to inside: the edge (id, time, headers), the log, the entrance (who, which tenant), the body's
size, routes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version

from fastapi import FastAPI

from durable_jobs.api.access import Access
from durable_jobs.api.bodies import ENVELOPE, BodyLimit
from durable_jobs.api.doors import Entrance, OpenDoor, TokenDoor
from durable_jobs.api.edge import DOCS, Edge
from durable_jobs.api.problems import MEDIA_TYPE, Problem
from durable_jobs.api.request_log import RequestLog
from durable_jobs.api.routes import (
    acting,
    health,
    listing,
    measuring,
    overview,
    pausing,
    reading,
    retaining,
    submitting,
)
from durable_jobs.api.tokens import verifier_of
from durable_jobs.api.translating import answer_errors
from durable_jobs.metrics import Metrics
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings

# In this order: what is fixed (/jobs/stats) comes before what has a name in its path (/jobs/{jobId}).
ROUTERS = (
    submitting.router,
    listing.router,
    overview.router,
    retaining.router,
    reading.router,
    acting.router,
    pausing.router,
    health.router,
    measuring.router,
)
LONGER: Mapping[tuple[str, str], timedelta] = {
    ("GET", "/jobs/purgeable"): retaining.LOOK_BOUND,
    ("DELETE", "/jobs/purge"): retaining.PURGE_BOUND,
}
"""What takes longer than other requests."""
_DESCRIPTION = """\
Submit, follow and operate durable jobs.

Every error is a problem document (RFC 9457). Send `Authorization: Bearer TOKEN`; the tenant and the submitter are
those of the token, and jobs of another tenant do not exist for it. Scopes: `submit`, `read`, `operate`.
"""
_PROBLEM = {"model": Problem, "description": "A problem", "content": {MEDIA_TYPE: {}}}


def create_app(settings: Settings, registry: Registry) -> FastAPI:
    """Return the application; it connects to the database when it is started.

    Raises:
        InvalidSettings: no database URL, or settings of tokens that cannot work.
    """
    verifier = verifier_of(settings)
    access = Access(settings, registry)
    metrics = Metrics.from_settings(settings, registry)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await access.open()
        try:
            async with metrics:
                yield
        finally:
            await access.close()

    app = FastAPI(
        title="durable-jobs",
        version=version("durable-jobs"),
        description=_DESCRIPTION,
        docs_url=DOCS,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        responses={"default": _PROBLEM},
    )
    app.state.access = access
    app.state.metrics = metrics
    app.state.routes = [route for router in ROUTERS for route in router.routes]
    for router in ROUTERS:
        app.include_router(router)
    answer_errors(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, most=settings.max_payload_bytes + ENVELOPE)
    app.add_middleware(Entrance, door=TokenDoor(verifier) if verifier is not None else OpenDoor())
    app.add_middleware(RequestLog)
    app.add_middleware(
        Edge,
        timeout=settings.api_request_timeout,
        longer=LONGER,
        most_in_flight=settings.api_max_in_flight,
    )
    return app
