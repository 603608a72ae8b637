"""`durable-jobs deploy` against a real Prefect server and a real Postgres: what it makes, and what it leaves alone."""

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from prefect import get_client
from prefect.client.schemas.actions import DeploymentScheduleUpdate, DeploymentUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.settings import PREFECT_API_URL, temporary_settings
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from durable_jobs.deployments.database_block import stored_database_url
from durable_jobs.deployments.deploy import Pools, bring_about
from durable_jobs.deployments.deploy_database import ForeignRole, RightMissing
from durable_jobs.deployments.deploy_plan import Action, Step
from durable_jobs.deployments.deploy_prefect import NoPrefectServer, PrefectUnavailable
from durable_jobs.deployments.manifest import read_manifest
from durable_jobs.errors import InvalidSettings, StoreUnavailable
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from tests.support.cluster import Urls, drop_database, in_database

pytestmark = [pytest.mark.usefixtures("prefect_harness"), pytest.mark.timeout(240)]

POOLS: Pools = {None: "jobs-of-the-test"}
MakeDatabase = Callable[[str | None], str]


@pytest.fixture(scope="module")
def make_database(template_urls: Urls) -> Iterator[MakeDatabase]:
    """Make empty databases; the owner is a role of that name without any right, or the superuser."""
    names: list[str] = []

    def make(owner: str | None = None) -> str:
        names.append(f"deploy_{uuid4().hex[:8]}")
        with psycopg.connect(in_database(template_urls.admin, "postgres"), autocommit=True) as connection:
            name = sql.Identifier(names[-1])
            connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
            url = make_url(in_database(template_urls.admin, names[-1]))
            if owner is not None:
                role = sql.Identifier(owner)
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'plain'").format(role))
                connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(name, role))
                url = url.set(username=owner, password="plain")
        return url.render_as_string(hide_password=False)

    yield make
    for name in names:
        drop_database(template_urls, name)


def settings(admin_url: str, **others: Any) -> Settings:
    return Settings(_env_file=None, admin_database_url=SecretStr(admin_url), **others)


def deploy(given: Settings, *, dry_run: bool = False) -> list[Step]:
    return asyncio.run(bring_about(given, POOLS, dry_run=dry_run))


def actions(steps: list[Step]) -> set[Action]:
    return {step.action for step in steps} - {Action.NOTE}


def changes(steps: list[Step]) -> list[str]:
    return [f"{step.action} {step.kind} {step.name}: {step.detail}" for step in steps if step.is_to_do]


def deployment(name: str) -> DeploymentResponse:
    async def read() -> DeploymentResponse:
        async with get_client() as client:
            return await client.read_deployment_by_name(name)

    return asyncio.run(read())


def update(name: str, change: DeploymentUpdate) -> None:
    async def write() -> None:
        async with get_client() as client:
            await client.update_deployment((await client.read_deployment_by_name(name)).id, change)

    asyncio.run(write())


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module of the user with a job type."""
    path = tmp_path_factory.mktemp("jobs") / "mine.py"
    path.write_text(
        "from pydantic import BaseModel\nfrom durable_jobs import job_type\n"
        "class Nothing(BaseModel): ...\n"
        "@job_type('MY_OWN', queue='default')\nasync def mine(request: Nothing, context) -> None: ...\n"
    )
    return path


@pytest.fixture(scope="module")
def deployed(prefect_harness: None, make_database: MakeDatabase, module: Path) -> Settings:
    """An installation that was deployed to: planned, then made, then looked at again."""
    given = settings(make_database(None), modules=(str(module),), heartbeat_interval=timedelta(seconds=4))
    assert Action.CREATE in actions(deploy(given, dry_run=True))
    planned = changes(deploy(given, dry_run=True))
    assert changes(deploy(given)) == planned
    return given


def test_a_second_run_changes_nothing(deployed: Settings) -> None:
    before = deployment("execute-jobs/shift").updated
    assert actions(deploy(deployed)) == {Action.UNCHANGED}
    assert deployment("execute-jobs/shift").updated == before


def test_every_deployment_is_there_with_its_cron_and_its_pool(deployed: Settings) -> None:
    for entry in read_manifest():
        flow = entry["entrypoint"].rpartition(".")[2].replace("_", "-")
        found = deployment(f"{flow}/{entry['name']}")
        crons = [getattr(schedule.schedule, "cron", None) for schedule in found.schedules]
        assert crons == [schedule["cron"] for schedule in entry.get("schedules", [])]
        assert found.work_pool_name == "jobs-of-the-test"
        assert not found.pull_steps


def test_modules_and_settings_reach_the_runs_and_the_form_but_no_secret_does(
    deployed: Settings, module: Path
) -> None:
    found = deployment("submit-job/manual")
    assert found.job_variables["env"] == {
        "DURABLE_JOBS_HEARTBEAT_INTERVAL": "4.0",
        "DURABLE_JOBS_MODULES": str(module),
    }
    assert "MY_OWN" in found.parameter_openapi_schema["properties"]["job_type"]["enum"]
    shown = deploy(deployed)
    url = asyncio.run(stored_database_url())
    assert url is not None
    secret = make_url(url.get_secret_value()).password
    assert str(secret) not in repr(shown) + str([step.as_json() for step in shown])


async def test_the_block_opens_the_store_as_a_role_that_row_level_security_binds(deployed: Settings) -> None:
    url = await stored_database_url()
    async with PgJobsStore.from_settings(Settings(_env_file=None, database_url=url)) as store:
        await store.open(environment="production")
        assert await store.executors() == []


def test_what_operators_set_in_prefect_stays(deployed: Settings) -> None:
    found = deployment("redis-health/every-5-minutes")
    schedule = found.schedules[0]
    paused = DeploymentScheduleUpdate(schedule=schedule.schedule, active=False, slug=schedule.slug)
    variables = {"env": found.job_variables["env"] | {"THEIRS": "kept"}, "working_dir": "/srv"}
    update(
        "redis-health/every-5-minutes",
        DeploymentUpdate(
            schedules=[paused], job_variables=variables, tags=found.tags, parameters={"targets": ["theirs"]}
        ),
    )
    assert actions(deploy(deployed)) == {Action.UNCHANGED}
    update("redis-health/every-5-minutes", DeploymentUpdate(description="wrong", tags=found.tags))
    (change,) = changes(deploy(deployed))
    assert change == "change deployment redis-health/every-5-minutes: description"
    after = deployment("redis-health/every-5-minutes")
    assert [schedule.active for schedule in after.schedules] == [False]
    assert after.job_variables == variables
    assert after.parameters == {"targets": ["theirs"]}
    assert after.description != "wrong"


def test_what_was_taken_away_is_given_back(deployed: Settings) -> None:
    assert deployed.admin_database_url is not None
    with psycopg.connect(deployed.admin_database_url.get_secret_value(), autocommit=True) as owner:
        (name,) = owner.execute("SELECT current_database()").fetchone() or ("",)
        role = sql.Identifier(f"durable_jobs_app_{name}")
        owner.execute(sql.SQL("REVOKE UPDATE ON job_history FROM {}").format(role))
        owner.execute(sql.SQL("ALTER ROLE {} PASSWORD 'another'").format(role))
    planned = changes(deploy(deployed, dry_run=True))
    assert planned == [
        f"change schema {name}: rights of durable_jobs_app_{name} on job_history",
        f"change role durable_jobs_app_{name}: the application's password",
    ]
    deploy(deployed)
    assert actions(deploy(deployed)) == {Action.UNCHANGED}


def test_a_password_of_your_own_is_taken(deployed: Settings) -> None:
    assert deployed.admin_database_url is not None
    url = make_url(deployed.admin_database_url.get_secret_value())
    own = url.set(username=f"durable_jobs_app_{url.database}", password="chosen")
    given = deployed.model_copy(update={"database_url": SecretStr(own.render_as_string(hide_password=False))})
    assert [step.kind for step in deploy(given) if step.is_to_do] == ["role", "block"]
    assert actions(deploy(given)) == {Action.UNCHANGED}
    other = SecretStr(own.set(username="somebody").render_as_string(hide_password=False))
    with pytest.raises(ForeignRole, match="'somebody'"):
        deploy(deployed.model_copy(update={"database_url": other}), dry_run=True)


def test_an_owner_without_rights_is_told_what_an_administrator_must_run(
    deployed: Settings, make_database: MakeDatabase, template_urls: Urls
) -> None:
    owner = f"plain_{uuid4().hex[:8]}"
    url = make_database(owner)
    application = make_url(url).set(username=f"durable_jobs_app_{make_url(url).database}", password="chosen")
    given = settings(url, database_url=SecretStr(application.render_as_string(hide_password=False)))
    with pytest.raises(RightMissing) as refused:
        deploy(given)
    statements = re.findall(r"^  (.*;)$", str(refused.value), re.MULTILINE)
    assert len(statements) == 4
    with psycopg.connect(in_database(template_urls.admin, "postgres"), autocommit=True) as administrator:
        for statement in statements:
            administrator.execute(statement.replace("...", "chosen").encode())
    steps = deploy(given)
    assert ("create", "schema") in {(step.action, step.kind) for step in steps}
    assert actions(deploy(given)) == {Action.UNCHANGED}


def test_a_dry_run_changes_nothing(deployed: Settings, make_database: MakeDatabase) -> None:
    url = make_database(None)
    assert ("create", "schema") in {(s.action, s.kind) for s in deploy(settings(url), dry_run=True)}
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('job_history')").fetchone() == (None,)


def test_what_is_not_there_is_named(deployed: Settings) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(NoPrefectServer):
        deploy(deployed)
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(PrefectUnavailable, match=r"http://127\.0\.0\.1:9/api"),
    ):
        deploy(deployed)
    with pytest.raises(InvalidSettings, match="DURABLE_JOBS_ADMIN_DATABASE_URL"):
        deploy(Settings(_env_file=None))
    with pytest.raises(StoreUnavailable):
        deploy(settings("postgresql://nobody:hidden@127.0.0.1:9/jobs"))
