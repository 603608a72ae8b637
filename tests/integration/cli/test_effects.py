"""`effects list`, `confirm`, `release`: a person settles what is not known, and the job goes on."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.command import Command

BILL = '{"number": 7}'
TYPES = """
from pydantic import BaseModel

from durable_jobs import JobContext, Skipped, job_type


class Bill(BaseModel):
    number: int


@job_type("BILL")
async def send(request: Bill, context: JobContext) -> object:
    async with context.effect(f"bill {request.number}", "MAIL") as effect:
        if effect.already_done:
            return Skipped("sent", effect.original_job_id)
        if request.number == 7 and context.retry_count == 0:
            raise TimeoutError("no answer")
        effect.result = {"mail": request.number}
    return None
"""


@pytest.fixture
def bills(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The command with a job type whose first mail is never answered."""
    module = tmp_path / f"bills_{uuid4().hex}.py"
    module.write_text(TYPES)
    monkeypatch.setenv("DURABLE_JOBS_MODULES", str(module))
    return command


def stopped_job(command: Command) -> str:
    """Return a job that stopped for a person."""
    job_id = command("submit", "BILL", BILL).out.strip()
    command.execute()
    retry = command("retry", job_id).out.strip()
    command.execute()
    document = command("get", retry, "--json").json
    assert (document["state"], document["retryable"]) == ("FAILED", False)
    assert document["failedReason"].startswith("EffectUnknown: effect MAIL may have happened")
    return retry


def test_what_is_unknown_is_listed_and_what_was_made_as_well(bills: Command) -> None:
    empty = bills("effects", "list")
    assert (empty.code, empty.out, empty.err) == (0, "", "no effects\n")
    stopped = stopped_job(bills)
    sent = bills("submit", "BILL", '{"number": 8}').out.strip()
    bills.execute()
    listed = bills("effects", "list", "--json").json["effects"]
    assert [(e["key"], e["state"], e["result"]) for e in listed] == [
        ("bill 8", "CONFIRMED", {"mail": 8}),
        ("bill 7", "UNKNOWN", None),
    ]
    assert listed[0].keys() == {
        "effectId", "key", "effectType", "state", "jobId", "rootJobId", "createdAt", "confirmedAt", "result",
    }  # fmt: skip
    [unknown] = bills("effects", "list", "--state", "unknown", "--json").json["effects"]
    assert unknown == listed[1]
    of_chain = bills("effects", "list", "--job", stopped, "--json").json["effects"]
    assert of_chain == [unknown]
    assert bills("effects", "list", "--job", sent, "--json").json["effects"] == [listed[0]]
    assert bills("effects", "list", "--tenant", "other", "--json").json == {"effects": []}
    heads, *lines = bills("effects", "list").out.splitlines()
    assert heads.split() == ["EFFECT", "ID", "TYPE", "KEY", "STATE", "JOB", "ID", "SINCE"]
    assert len(lines) == 2
    assert unknown["effectId"] in lines[1]


def test_a_confirmed_effect_lets_the_resubmitted_job_skip_it(bills: Command) -> None:
    stopped = stopped_job(bills)
    [effect] = bills("effects", "list", "--state", "UNKNOWN", "--json").json["effects"]
    done = bills("effects", "confirm", effect["effectId"])
    assert (done.code, done.out) == (0, f"{effect['effectId']} CONFIRMED\n")
    again = bills("effects", "confirm", effect["effectId"], "--json")
    assert (again.code, again.json["state"], again.json["released"]) == (0, "CONFIRMED", False)
    anew = bills("resubmit", stopped).out.strip()
    bills.execute()
    document = bills("get", anew, "--json").json
    assert document["state"] == "SUCCEEDED"
    assert document["result"]["status"] == "SKIPPED"
    refused = bills("effects", "release", effect["effectId"])
    assert (refused.code, refused.out) == (1, "")
    assert f"effect {effect['effectId']} is CONFIRMED" in refused.err


def test_a_released_effect_is_forgotten(bills: Command) -> None:
    stopped_job(bills)
    [effect] = bills("effects", "list", "--json").json["effects"]
    unknown = str(uuid4())
    done = bills("effects", "release", unknown, effect["effectId"])
    assert (done.code, done.out) == (1, f"{effect['effectId']} released\n")
    assert f"no effect {unknown} in tenant 'default'" in done.err
    assert bills("effects", "list", "--json").json == {"effects": []}


def test_what_cannot_be_right_is_named(bills: Command) -> None:
    for arguments, message in (
        (("confirm", "7"), "effect id '7' is not a UUID"),
        (("list", "--state", "DONE"), "--state 'DONE' is no state of an effect"),
        (("list", "--job", "7"), "job id '7' is not a UUID"),
    ):
        result = bills("effects", *arguments)
        assert (result.code, result.out) == (2, "")
        assert message in result.err
