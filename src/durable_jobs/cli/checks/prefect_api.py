"""Is Prefect there, of a version that fits, and has it every deployment of prefect.yaml?

Prefect is asked over HTTP; the package itself is never loaded here.
"""

from __future__ import annotations

import asyncio
import os
from importlib import resources
from importlib.metadata import version
from typing import Any, NamedTuple

import httpx
import yaml

from durable_jobs.cli.checks.findings import Finding, failed, ok, unknown, warning

TIMEOUT_S = 5.0
DEPLOY = "`durable-jobs up` serves all of them, `durable-jobs deploy` makes them on a server of yours"


class Expected(NamedTuple):
    """A deployment of prefect.yaml."""

    flow: str
    name: str
    scheduled: bool

    def __str__(self) -> str:
        """Return its name as Prefect writes it."""
        return f"{self.flow}/{self.name}"


def open_client() -> httpx.AsyncClient | None:
    """Return a client of the Prefect API that the environment names, if it names one."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return None
    headers, auth = {}, None
    if key := os.environ.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    elif login := os.environ.get("PREFECT_API_AUTH_STRING"):
        user, _, password = login.partition(":")
        auth = httpx.BasicAuth(user, password)
    return httpx.AsyncClient(base_url=url.rstrip("/") + "/", headers=headers, auth=auth, timeout=TIMEOUT_S)


def address(client: httpx.AsyncClient) -> str:
    """Return the address without a login that the URL may hold."""
    return f"{client.base_url.scheme}://{client.base_url.netloc.decode()}{client.base_url.path}".rstrip("/")


async def check_api(client: httpx.AsyncClient) -> list[Finding]:
    """Tell whether the API answers and which version it is.

    Raises:
        httpx.HTTPError: it does not answer, or refuses us.
        ValueError: what answers is no Prefect API.
    """
    if (await client.get("health")).raise_for_status().text != "true":
        raise ValueError("what answers is no Prefect API")
    answer = await client.get("admin/version")
    found = [ok("Prefect API", f"answers at {address(client)}")]
    if answer.is_error:
        return [*found, unknown("Prefect version", "the server does not tell it", "nothing to do")]
    theirs, ours = str(answer.json()), version("prefect")
    if _minor(theirs) < _minor(ours):
        way_out = f"update the server to {ours}: a server must not be older than its clients"
        return [*found, warning("Prefect version", f"server {theirs}, client {ours}", way_out)]
    return [*found, ok("Prefect version", f"server {theirs}, client {ours}")]


async def check_deployments(client: httpx.AsyncClient) -> Finding:
    """Look for each deployment of the packaged prefect.yaml."""
    wanted = expected_deployments()
    answers = await asyncio.gather(*(client.get(f"deployments/name/{e.flow}/{e.name}") for e in wanted))
    missing, paused, idle = [], [], []
    for one, answer in zip(wanted, answers, strict=True):
        if answer.status_code == httpx.codes.NOT_FOUND:
            missing.append(str(one))
            continue
        answer.raise_for_status()
        deployment = answer.json()
        if deployment.get("paused") or (one.scheduled and not _is_scheduled(deployment)):
            paused.append(str(one))
        elif deployment.get("status") != "READY":
            idle.append(str(one))
    return _verdict(len(wanted), missing, paused, idle)


def expected_deployments() -> list[Expected]:
    """Return the deployments of prefect.yaml; a flow has its function's name with dashes."""
    text = (resources.files("durable_jobs") / "prefect.yaml").read_text("utf-8")
    return [
        Expected(
            entry["entrypoint"].rpartition(".")[2].replace("_", "-"),
            entry["name"],
            bool(entry.get("schedules")),
        )
        for entry in yaml.safe_load(text)["deployments"]
    ]


def _is_scheduled(deployment: dict[str, Any]) -> bool:
    return any(schedule.get("active") for schedule in deployment.get("schedules") or [])


def _verdict(wanted: int, missing: list[str], paused: list[str], idle: list[str]) -> Finding:
    if missing:
        return failed("deployments", f"missing: {', '.join(missing)}", DEPLOY)
    if paused:
        return failed(
            "deployments",
            f"paused: {', '.join(paused)}",
            "resume their schedules in the Prefect UI, or `prefect deployment schedule resume NAME`",
        )
    if idle:
        return warning(
            "deployments",
            f"nobody polls for {', '.join(idle)}",
            "start a worker for their work pool, or `durable-jobs up`",
        )
    return ok("deployments", f"all {wanted} of prefect.yaml are there, and polled for")


def _minor(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
