"""A policy is read from tags and the variable; what cannot be read is told and does not count."""

from __future__ import annotations

from datetime import timedelta

from durable_jobs.flow_runs.policy import RunPolicy, read_policy

NAME = "etl/nightly"


def test_without_a_word_the_defaults_hold() -> None:
    read = read_policy(NAME, ["durable", "other:max-retries=9"], None)
    assert (read.policy, read.faults) == (RunPolicy(), ())
    assert read.policy.as_json() == {
        "maxRetries": 3,
        "retryBackoff": None,
        "retryable": True,
        "timeout": None,
    }


def test_tags_say_it_and_the_variable_wins() -> None:
    tags = ["durable:max-retries=5", "durable:backoff=90", "durable:timeout=PT2H", "durable:not-retryable"]
    said = RunPolicy(
        max_retries=5,
        retry_backoff=timedelta(seconds=90),
        timeout=timedelta(hours=2),
        retryable=False,
    )
    assert read_policy(NAME, tags, {"other/one": {"max_retries": 1}}).policy == said
    variable = {NAME: {"max_retries": 7, "retryable": True, "timeout": None}}
    assert read_policy(NAME, tags, variable).policy == RunPolicy(
        max_retries=7, retry_backoff=timedelta(seconds=90), retryable=True, timeout=None
    )


def test_what_cannot_be_read_is_told_and_the_rest_holds() -> None:
    read = read_policy(
        NAME,
        ["durable:max-retries=many", "durable:backof=1", "durable:timeout=-5", "durable:backoff=PT1M"],
        {NAME: {"max_retries": -1, "color": "red"}},
    )
    assert read.policy == RunPolicy(retry_backoff=timedelta(minutes=1))
    assert len(read.faults) == 5
    assert any("'backof' is not one of max-retries, backoff, timeout" in fault for fault in read.faults)


def test_a_variable_that_is_no_object_does_no_harm() -> None:
    for variable in ("text", 5, [NAME], {NAME: "3"}):
        assert read_policy(NAME, [], variable).policy == RunPolicy()
