"""examples/payments.py, as its first lines say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_jobs import Job, JobState
from durable_jobs.executor.shift import Shift
from durable_jobs.loading import load_registry
from durable_jobs.tenants import job_tenant_scope
from tests.integration.effects.world import TENANT, World
from tests.support.jobs import new_job

EXAMPLE = Path(__file__).parents[3] / "examples" / "payments.py"


async def test_an_order_is_paid_once_and_a_refused_one_may_be_paid_later(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK", str(tmp_path / "bank"))
    registry = load_registry([str(EXAMPLE)])

    async def executed(number: int, amount: str) -> Job:
        data = {"number": number, "amount": amount}
        new = new_job(data, job_type="PAY_ORDER", queue="default")
        with job_tenant_scope(TENANT):
            [(job, _)] = await world.store.register_idempotent([new])
        await Shift(world.store, registry, world.settings, until_empty=True).run()
        return await world.get(job)

    paid = await executed(7, "12.50")
    assert paid.state is JobState.SUCCEEDED, paid.failed_reason
    [file] = (tmp_path / "bank").iterdir()
    assert paid.result["value"] == {"reference": file.name}
    assert file.read_text() == "12.50\n"
    assert world.skipped(await executed(7, "12.50")) is not None
    refused = await executed(8, "5000")
    assert refused.failed_reason == "EffectNotMade: the bank refuses 5000: more than 1000 at once"
    assert refused.retryable
    assert [row["key"] for row in world.probe.effects()] == ["order 7", "order 7"]
    assert len(list((tmp_path / "bank").iterdir())) == 1
