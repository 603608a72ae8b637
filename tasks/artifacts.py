"""Leaves artifacts for people: what they tell of is done already, so Prefect may be away."""

from __future__ import annotations

import httpx
import structlog
from prefect.artifacts import acreate_markdown_artifact

logger = structlog.get_logger(__name__)


async def leave_artifact(key: str, markdown: str, description: str) -> None:
    """Leave a markdown artifact, or a warning when Prefect does not take it."""
    try:
        await acreate_markdown_artifact(key=key, markdown=markdown, description=description)
    except httpx.HTTPError as error:
        logger.warning("artifact not left", key=key, error=repr(error))
