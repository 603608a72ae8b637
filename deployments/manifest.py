"""Reads prefect.yaml, the only place where a deployment and its cron are written."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml


def read_manifest() -> list[dict[str, Any]]:
    """Return the entries under `deployments` of the prefect.yaml that ships with this package."""
    text = (resources.files("durable_jobs") / "prefect.yaml").read_text("utf-8")
    return list(yaml.safe_load(text).get("deployments") or [])


def is_scheduled(entry: dict[str, Any]) -> bool:
    """Tell whether the deployment runs by itself; the others run when somebody asks."""
    return bool(entry.get("schedules"))
