"""`durable-jobs deploy`: everything that a Prefect server and a Postgres of your own need, and nothing twice."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from prefect.client.orchestration import PrefectClient
from pydantic import SecretStr

from durable_jobs.cli.arguments import Json
from durable_jobs.cli.output import answer, answer_json, say
from durable_jobs.cli.running import quiet_logs
from durable_jobs.deployments.automations import plan_automations
from durable_jobs.deployments.database_block import stored_database_url
from durable_jobs.deployments.deploy_database import plan_database
from durable_jobs.deployments.deploy_deployments import Wanted, plan_deployments, wanted_deployment
from durable_jobs.deployments.deploy_plan import Action, Step, plan_json, plan_sentence, plan_table, to_do
from durable_jobs.deployments.deploy_prefect import (
    named_server,
    plan_block,
    plan_block_types,
    plan_pools,
    server_notes,
)
from durable_jobs.deployments.environment import public_environment
from durable_jobs.deployments.manifest import read_manifest
from durable_jobs.deployments.progress import Progress
from durable_jobs.errors import InvalidSettings
from durable_jobs.loading import load_registry
from durable_jobs.settings import Settings

ISOLATED = "isolated"
Pools = dict[str | None, str | None]
DRY_RUN_HELP = "Show what would be done, and change nothing."
POOL_HELP = (
    "Work pool of the deployments; made with type process if it is missing. Default: that of prefect.yaml."
)
NOTIFICATION_HELP = "Block that is told of CRITICAL events, as type-slug/name, such as slack-webhook/ops."
ISOLATED_POOL_HELP = "Another work pool for jobs that run alone, with other resources."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("deploy")(deploy)


def deploy(
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN_HELP)] = False,
    work_pool: Annotated[str | None, typer.Option(help=POOL_HELP)] = None,
    isolated_work_pool: Annotated[str | None, typer.Option(help=ISOLATED_POOL_HELP)] = None,
    notification_block: Annotated[str | None, typer.Option(help=NOTIFICATION_HELP)] = None,
    as_json: Json = False,
) -> None:
    """Bring a Prefect server and a Postgres of yours to what durable-jobs needs.

    The schema and its roles, the blocks, the work pool, the deployments, the automations. What is as it should
    be is left alone, so a second run changes nothing.

    Needs PREFECT_API_URL and DURABLE_JOBS_ADMIN_DATABASE_URL.

    Example: durable-jobs deploy --dry-run
    """
    quiet_logs()
    pools: Pools = {None: work_pool, ISOLATED: isolated_work_pool or work_pool}
    steps = asyncio.run(
        bring_about(Settings.load(), pools, dry_run=dry_run, notification_block=notification_block)
    )
    if as_json:
        answer_json(plan_json(steps, dry_run=dry_run))
        return
    Progress().console.print(plan_table(steps))
    answer(plan_sentence(steps, dry_run=dry_run))


async def bring_about(
    settings: Settings, pools: Pools, *, dry_run: bool, notification_block: str | None = None
) -> list[Step]:
    """Plan, and unless it is a dry run do, what is to be done; return the plan.

    Args:
        settings: with the owner's URL; what else was set reaches the flow runs.
        pools: the work pool of each deployment by its name, and under None that of all others.
        dry_run: change nothing.
        notification_block: where CRITICAL events are told of, as `type-slug/name`; None keeps what is there.

    Raises:
        NoPrefectServer, PrefectUnavailable, PrefectRefused: of the server.
        RightMissing, ForeignRole, DatabaseNewer, StoreUnavailable: of the database.
        InvalidSettings, ModuleNotLoadable, InvalidDeclaration: of what is to be deployed.
    """
    wanted = _wanted(settings, pools)
    async with named_server() as client:
        steps = await _plan(client, settings, wanted, notification_block)
        for step in [] if dry_run else to_do(steps):
            say(f"{step.action} {step.kind} {step.name}")
            if step.apply is not None:
                await step.apply()
    return steps


def _wanted(settings: Settings, pools: Pools) -> list[Wanted]:
    registry = load_registry(settings.modules)
    variables = public_environment(settings)
    return [
        wanted_deployment(entry, registry.job_types, variables, pools.get(entry["name"], pools[None]))
        for entry in read_manifest()
    ]


async def _plan(
    client: PrefectClient, settings: Settings, wanted: list[Wanted], notification_block: str | None
) -> list[Step]:
    stored = await stored_database_url()
    database = plan_database(_admin_url(settings), settings.database_url, stored)
    return [
        *database.steps,
        *await plan_block_types(client),
        plan_block(stored, database.application_url),
        *await plan_pools(client, (one.fields["work_pool_name"] for one in wanted)),
        *await plan_deployments(client, wanted),
        *await plan_automations(client, notification_block=notification_block),
        *await server_notes(client),
        *_settings_notes(settings),
    ]


def _admin_url(settings: Settings) -> str:
    if settings.admin_database_url is None:
        raise InvalidSettings(
            "DURABLE_JOBS_ADMIN_DATABASE_URL is not set: the URL of the owner of the database, who makes the tables"
            " and the roles; no flow run gets it"
        )
    return settings.admin_database_url.get_secret_value()


def _settings_notes(settings: Settings) -> list[Step]:
    """Name the secrets that flow runs cannot get from here: job variables are open to everyone in Prefect."""
    secret = [
        f"DURABLE_JOBS_{name.upper()}"
        for name in sorted(settings.model_fields_set - {"database_url", "admin_database_url"})
        if isinstance(getattr(settings, name), SecretStr)
    ]
    detail = "is a secret: set it where the workers run"
    return [Step("setting", name, Action.NOTE, detail) for name in secret]
