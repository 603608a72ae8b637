"""Alerts reach Prefect whatever happens to it, and automations act on them: on one real server, killed once."""

from __future__ import annotations

import resource
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.events import Event, Resource, get_events_client

from durable_jobs.deployments.automations import apply_automations
from durable_jobs.deployments.deploy_plan import Action
from durable_jobs.errors import BadInput
from durable_jobs.flows.jobs_dlq_retry import jobs_dlq_retry
from durable_jobs.outbox.publishing import ON_THE_WAY, Published
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import NewEvent
from durable_jobs.tasks.dead_letters import PassFailed
from durable_jobs.tasks.publishing import PrefectEvents, publish_events, publishing_meanwhile
from durable_jobs.tenants import job_tenant_scope
from tests.contract.test_dead_letters import failed_jobs
from tests.contract.test_failed_jobs import failed_job
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.prefect_server import PrefectServer
from tests.support.stores import open_store
from tests.support.webhook import Webhook

pytestmark = pytest.mark.timeout(400)
SOON = timedelta(milliseconds=100)
NEVER = timedelta(days=1)


async def publish_all(store: PgJobsStore, *, lost: timedelta = NEVER) -> Published:
    done = Published()

    async def nothing_left() -> bool:
        nonlocal done
        done = done.plus(await publish_events(store, settled=SOON, lost=lost))
        backlog = await store.event_backlog()
        return backlog.waiting + backlog.posted == 0

    await eventually(nothing_left, timedelta(seconds=60), every=timedelta(milliseconds=200))
    return done


def ids_of(owner: Any) -> list[str]:
    return [str(row[0]) for row in owner.execute("SELECT event_id FROM job_events")]


async def test_an_alert_is_published_when_prefect_shows_it(
    prefect_server: PrefectServer, pg_store: PgJobsStore, owner_connection: Any
) -> None:
    job_id = await failed_job(pg_store)
    await pg_store.record_events([NewEvent("jobs.queue.stalled", "WARNING", {"queue": "deep"})])
    first = await publish_events(pg_store, settled=NEVER)
    assert first == Published(posted=2)
    assert (await publish_events(pg_store, settled=NEVER)).posted == 0
    assert (await publish_all(pg_store)).published == 2
    events = {str(e["event"]): e for e in prefect_server.events(*ids_of(owner_connection))}
    assert set(events) == {"jobs.job.failed", "jobs.queue.stalled"}
    assert events["jobs.job.failed"]["resource"]["prefect.resource.id"] == f"durable-jobs.job.{job_id}"


async def test_an_event_over_the_limit_arrives_cut(
    prefect_server: PrefectServer, pg_store: PgJobsStore, owner_connection: Any
) -> None:
    await pg_store.record_events([NewEvent("jobs.purge.completed", "INFO", {"text": "x" * 1_600_000})])
    await publish_all(pg_store)
    [event] = prefect_server.events(*ids_of(owner_connection))
    assert event["payload"]["cut"]


async def test_prefect_killed_right_after_accepting_and_away_while_jobs_fail(
    prefect_server: PrefectServer, pg_store: PgJobsStore, owner_connection: Any
) -> None:
    before = datetime.now(UTC)
    for n in range(120):
        await pg_store.record_events([NewEvent("jobs.dlq.critical", "CRITICAL", {"n": n}, "acme")])
    assert (await publish_events(pg_store, settled=NEVER)).posted == 120
    prefect_server.kill()
    try:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        job_id = await failed_job(pg_store)
        with job_tenant_scope("acme"):
            assert (await pg_store.get(job_id)).state is JobState.FAILED
        for _ in range(3):
            away = await publish_events(pg_store, settled=timedelta(0), lost=NEVER)
            assert away.away is not None
            assert "Prefect does not answer" in away.away
        backlog = await pg_store.event_backlog()
        assert backlog.waiting + backlog.posted == 121
        assert backlog.oldest_at is not None
        assert backlog.oldest_at >= before
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 50_000
    finally:
        prefect_server.start()
    done = await publish_all(pg_store, lost=timedelta(seconds=4))
    assert done.published == 121
    # Some were accepted and lost with the server's memory; none is there twice.
    ids = ids_of(owner_connection)
    found = [e["id"] for n in range(0, 121, 50) for e in prefect_server.events(*ids[n : n + 50])]
    assert sorted(map(str, found)) == sorted(ids)


async def test_never_more_on_the_way_than_prefect_may_lose(
    prefect_server: PrefectServer, pg_store: PgJobsStore
) -> None:
    for _ in range(ON_THE_WAY // 100 + 2):
        await pg_store.record_events([NewEvent("many", "INFO", {}, "acme")] * 100)
    assert (await publish_events(pg_store, settled=NEVER)).posted == ON_THE_WAY
    assert (await publish_events(pg_store, settled=NEVER)).posted == 0
    assert (await publish_all(pg_store)).published == ON_THE_WAY + 200


async def test_a_shift_publishes_beside_its_work(
    prefect_server: PrefectServer, pg_store: PgJobsStore
) -> None:
    async with publishing_meanwhile(pg_store):
        await failed_job(pg_store)

        async def published() -> bool:
            backlog = await pg_store.event_backlog()
            return backlog.waiting + backlog.posted == 0

        await eventually(published, timedelta(seconds=90), every=timedelta(milliseconds=200))


async def test_a_refused_event_holds_no_other_back(
    prefect_server: PrefectServer, pg_store: PgJobsStore, owner_connection: Any, monkeypatch: Any
) -> None:
    whole = PrefectEvents.post

    async def with_a_fault(self: PrefectEvents, documents: Any) -> None:
        # Related resources without a role are against Prefect's rules: the real server refuses them.
        faulty = [
            d | {"related": [{"prefect.resource.id": "x"}]} if d["related"] and d["payload"].get("bad") else d
            for d in documents
        ]
        await whole(self, faulty)

    monkeypatch.setattr(PrefectEvents, "post", with_a_fault)
    for n in range(5):
        await pg_store.record_events([NewEvent("some", "INFO", {"bad": n == 2}, "acme")])
    assert (await publish_all(pg_store)).published == 5
    events = prefect_server.events(*ids_of(owner_connection))
    assert sorted(bool(e["payload"].get("cut")) for e in events) == [False] * 4 + [True]


@pytest.fixture
async def submit_deployment(prefect_server: PrefectServer) -> str:
    """The deployment that the form of submit-job has; nobody executes its runs here."""
    async with get_client() as client:
        # The other deployment that an automation starts.
        flow_id = await client.create_flow_from_name("collect-flow-runs")
        await client.create_deployment(flow_id=flow_id, name="every-minute")
        flow_id = await client.create_flow_from_name("submit-job")
        return str(
            await client.create_deployment(flow_id=flow_id, name="manual", enforce_parameter_schema=False)
        )


async def from_outside(name: str, payload: dict[str, Any]) -> Event:
    """Send an event as others do, over a connection of its own."""
    event = Event(event=name, resource=Resource({"prefect.resource.id": "outside.1"}), payload=payload)
    async with get_events_client() as client:
        await client.emit(event)
    return event


async def submitted(deployment_id: str) -> list[FlowRun]:
    async with get_client() as client:
        wanted = DeploymentFilter(id=DeploymentFilterId(any_=[UUID(deployment_id)]))
        return await client.read_flow_runs(deployment_filter=wanted)


async def test_automations_are_applied_by_name_and_a_persons_decisions_stay(
    prefect_server: PrefectServer, submit_deployment: str
) -> None:
    with Webhook() as hook:
        await notification_block(hook, "first")
        async with get_client() as client:
            first = await apply_automations(client, notification_block="custom-webhook/first")
            again = await apply_automations(client)
            assert [step.action for step in first] == [Action.CREATE] * 4
            assert [step.action for step in again] == [Action.UNCHANGED] * 4
            [notifies] = await client.read_automations_by_name(first[0].name)
            await client.pause_automation(notifies.id)
            changed = await apply_automations(client, silence=timedelta(minutes=7))
            assert [step.action for step in changed] == [
                Action.UNCHANGED,
                Action.CHANGE,
                Action.UNCHANGED,
                Action.UNCHANGED,
            ]
            [notifies] = await client.read_automations_by_name(first[0].name)
            assert not notifies.enabled
            with pytest.raises(BadInput, match="custom-webhook/nobody' does not exist"):
                await apply_automations(client, notification_block="custom-webhook/nobody")
            for step in first:
                for automation in await client.read_automations_by_name(step.name):
                    await client.delete_automation(automation.id)


async def test_automations_notify_watch_the_reconciler_and_submit_a_job(
    prefect_server: PrefectServer, pg_store: PgJobsStore, submit_deployment: str
) -> None:
    with Webhook() as hook:
        await notification_block(hook, "ops")
        async with get_client() as client:
            await apply_automations(
                client, notification_block="custom-webhook/ops", silence=timedelta(seconds=10)
            )
        asked = {"job_type": "WORK", "data": {"n": 7, "why": 'a "quote"'}, "tenant": "acme", "priority": 5}
        event = await from_outside("durable-jobs.submit", asked)
        await pg_store.record_events(
            [
                NewEvent("jobs.dlq.critical", "CRITICAL", {"why": "1,000 dead letters"}),
                NewEvent("jobs.dlq.warning", "WARNING", {"why": "only a warning"}),
            ]
        )
        await publish_all(pg_store)

        def told() -> bool:
            return any("1,000 dead letters" in body for body in hook.received) and any(
                "does not reconcile" in body for body in hook.received
            )

        await eventually(told, timedelta(seconds=120), every=timedelta(milliseconds=200))
        [run] = await eventually(lambda: submitted(submit_deployment), timedelta(seconds=90))
        assert run.parameters == asked | {"idempotency_key": f"event {event.id}"}
        assert not any("only a warning" in body for body in hook.received)
        # None has started itself: what they did is one message for one event, and one run.
        assert sum("1,000 dead letters" in body for body in hook.received) == 1
        assert len(await submitted(submit_deployment)) == 1


async def test_evt2_a_dead_letter_pass_that_fails_starts_nothing(
    prefect_server: PrefectServer,
    submit_deployment: str,
    new_database: Callable[[], Urls],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = new_database()
    for name, value in {"DATABASE_URL": own.application, "MODULES": "tests.support.letter_types"}.items():
        monkeypatch.setenv(f"DURABLE_JOBS_{name}", value)
    before = {run.id for run in await all_runs()}
    with Webhook() as hook:
        await notification_block(hook, "night")
        async with get_client() as client:
            await apply_automations(client, notification_block="custom-webhook/night")
        async with open_store(own.application) as store:
            await failed_jobs(store, 3)
            with psycopg.connect(own.admin, autocommit=True) as owner:
                owner.execute("ALTER TABLE job_history ADD CHECK (state <> 'RETRIED')")
            for _ in range(2):
                with pytest.raises(PassFailed):
                    await jobs_dlq_retry()
            await publish_all(store)
        event = await from_outside("durable-jobs.submit", {"job_type": "WORK", "data": {}})

        async def started() -> list[FlowRun]:
            return [run for run in await all_runs() if run.id not in before]

        async def asked_for() -> list[FlowRun]:
            return [run for run in await started() if str(run.deployment_id) == submit_deployment]

        # What came last has had its effect, so everything before it was looked at.
        [run] = await eventually(asked_for, timedelta(seconds=90))
        assert run.parameters["idempotency_key"] == f"event {event.id}"
        runs = await started()
    assert sorted(str(r.state_name) for r in runs if r.id != run.id) == ["Failed", "Failed"]
    assert [body for body in hook.received if "does not reconcile" not in body] == []


async def all_runs() -> list[FlowRun]:
    async with get_client() as client:
        return await client.read_flow_runs()


async def notification_block(hook: Webhook, name: str) -> None:
    block = CustomWebhookNotificationBlock(
        name=name, url=hook.url, json_data={"subject": "{{subject}}", "body": "{{body}}"}
    )
    await block.save(name, overwrite=True)
