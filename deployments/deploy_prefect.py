"""Prefect's part of a deployment, apart from the deployments themselves: the server, work pools, blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import httpx
from prefect.blocks.core import Block
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import get_current_settings
from prefect.workers.utilities import get_default_base_job_template_for_infrastructure_type
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from durable_jobs.blocks.jobs_database import BLOCK_NAME, JobsDatabase
from durable_jobs.blocks.redis_target import RedisTargetBlock
from durable_jobs.deployments.database_block import save_database_block
from durable_jobs.deployments.deploy_plan import Action, Step
from durable_jobs.errors import BadInput, DurableJobsError
from durable_jobs.urls import libpq_url, without_password

POOL_TYPE = "process"
BLOCK_TYPES: tuple[type[Block], ...] = (JobsDatabase, RedisTargetBlock)


class NoPrefectServer(BadInput):
    """No Prefect server is named."""


class PrefectUnavailable(DurableJobsError):
    """The Prefect server does not answer."""


class PrefectRefused(DurableJobsError):
    """The Prefect server answers, and refuses."""


@asynccontextmanager
async def named_server() -> AsyncIterator[PrefectClient]:
    """Open a client of the server that Prefect's settings name, and turn its faults into ours.

    Raises:
        NoPrefectServer: none is named; a temporary one would be forgotten at once.
        PrefectUnavailable, PrefectRefused.
    """
    url = get_current_settings().api.url
    if not url:
        raise NoPrefectServer(
            "PREFECT_API_URL is not set: name the API of your Prefect server, such as http://127.0.0.1:4200/api,"
            " with PREFECT_API_AUTH_STRING or PREFECT_API_KEY if it asks for a login"
        )
    try:
        async with get_client() as client:
            if (fault := await client.api_healthcheck()) is not None:
                raise PrefectUnavailable(
                    f"no Prefect server answers at {url}: {fault or type(fault).__name__}"
                )
            yield client
    except PrefectHTTPStatusError as error:
        raise _refused(url, error.response) from error
    except httpx.HTTPError as error:
        raise PrefectUnavailable(f"the Prefect server at {url} does not answer: {error!r}") from error


def _refused(url: str, response: httpx.Response) -> PrefectRefused:
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return PrefectRefused(
            f"the Prefect server at {url} refuses the login (HTTP {response.status_code}):"
            " set PREFECT_API_AUTH_STRING (user:password) or PREFECT_API_KEY"
        )
    asked = f"{response.request.method} {response.request.url.path}"
    return PrefectRefused(
        f"the Prefect server answers {response.status_code} to {asked}: {response.text[:300]}"
    )


async def plan_pools(client: PrefectClient, names: Iterable[str]) -> list[Step]:
    """Look for the work pools; one that exists is left as it is, whatever its type."""
    return [await _plan_pool(client, name) for name in dict.fromkeys(names)]


async def _plan_pool(client: PrefectClient, name: str) -> Step:
    async def create() -> None:
        template = await get_default_base_job_template_for_infrastructure_type(POOL_TYPE)
        pool = WorkPoolCreate(name=name, type=POOL_TYPE, base_job_template=template or {})
        await client.create_work_pool(pool)

    try:
        pool = await client.read_work_pool(name)
    except ObjectNotFound:
        return Step("work pool", name, Action.CREATE, f"type {POOL_TYPE}", create)
    limit = f", at most {pool.concurrency_limit} runs at once" if pool.concurrency_limit is not None else ""
    if pool.is_paused:
        return Step("work pool", name, Action.NOTE, f"is paused: prefect work-pool resume {name}")
    return Step("work pool", name, Action.UNCHANGED, f"type {pool.type}{limit}")


async def plan_block_types(client: PrefectClient) -> list[Step]:
    """Look for the block types of this version."""
    return [await _plan_block_type(client, block) for block in BLOCK_TYPES]


async def _plan_block_type(client: PrefectClient, block: type[Block]) -> Step:
    async def register() -> None:
        await block.aregister_type_and_schema()

    slug = block.get_block_type_slug()
    try:
        await client.read_block_type_by_slug(slug)
    except ObjectNotFound:
        return Step("block type", slug, Action.CREATE, apply=register)
    try:
        await client.read_block_schema_by_checksum(block._calculate_schema_checksum())
    except ObjectNotFound:
        return Step("block type", slug, Action.CHANGE, "its fields", register)
    return Step("block type", slug, Action.UNCHANGED)


def plan_block(stored: SecretStr | None, wanted: SecretStr) -> Step:
    """Compare the block with the application's URL; no password is shown."""

    async def save() -> None:
        await save_database_block(wanted.get_secret_value())

    name = f"jobs-database/{BLOCK_NAME}"
    shown = without_password(wanted.get_secret_value())
    if stored is None:
        return Step("block", name, Action.CREATE, shown, save)
    if _same(stored, wanted):
        return Step("block", name, Action.UNCHANGED, shown)
    return Step("block", name, Action.CHANGE, shown, save)


def _same(one: SecretStr, other: SecretStr) -> bool:
    first, second = (make_url(libpq_url(url.get_secret_value())) for url in (one, other))
    return first == second


async def server_notes(client: PrefectClient) -> list[Step]:
    """Tell what about the server's own settings is worth knowing; they are its operator's."""
    try:
        answer = await client.request("GET", "/admin/settings")
    except (ObjectNotFound, PrefectHTTPStatusError):
        return [Step("server", "settings", Action.NOTE, "the server does not tell its settings")]
    services = answer.json().get("server", {}).get("services", {})
    return [
        *_recorder_note(services.get("task_run_recorder", {})),
        *_retention_note(services.get("db_vacuum", {})),
    ]


def _recorder_note(recorder: dict[str, object]) -> list[Step]:
    if all(isinstance(n := recorder.get(key), int) and n > 1 for key in ("batch_size", "read_batch_size")):
        return []
    prefix = "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_"
    detail = (
        f"records about 28 task runs a second; {prefix}BATCH_SIZE=200 and {prefix}READ_BATCH_SIZE=200 raise that"
        " to 125 or more"
    )
    return [Step("server", "task run recorder", Action.NOTE, detail)]


def _retention_note(vacuum: dict[str, object]) -> list[Step]:
    enabled = vacuum.get("enabled")
    if isinstance(enabled, list) and "flow_runs" in enabled:
        return []
    detail = (
        "never deletes old flow runs, and there are two thousand a day;"
        " PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED=events,flow_runs does"
    )
    return [Step("server", "retention", Action.NOTE, detail)]
