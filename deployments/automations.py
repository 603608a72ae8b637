"""The automations of durable-jobs on a Prefect server: applied by name, any number of times.

None can start itself: an automation that starts a deployment must not expect an event that our own flows
or Prefect's leave, unless it is about flow runs with a tag that none of ours has; and an empty match, which would
fit every event there is, is refused. A person's decisions stay: what was disabled stays disabled, and the
notification block stays until another is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

import yaml
from prefect.client.orchestration import PrefectClient
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound

from durable_jobs.deployments.deploy_plan import Action, Step, to_do
from durable_jobs.errors import BadInput
from durable_jobs.flow_runs.policy import TAG

FILE = "automations.yaml"
SILENCE = timedelta(minutes=5)
_DEAD_MAN = ["jobs.reconcile.completed"]
_OURS = ("jobs.", "redis.health.", "prefect.")
_COMPARED = ("description", "trigger", "actions")


class UnsafeAutomation(BadInput):
    """An automation could start itself, or fits every event."""


async def apply_automations(
    client: PrefectClient, *, notification_block: str | None = None, silence: timedelta = SILENCE
) -> list[Step]:
    """Create or change what is not as it should be, and return the plan; see `plan_automations`."""
    steps = await plan_automations(client, notification_block=notification_block, silence=silence)
    for step in to_do(steps):
        if step.apply is not None:
            await step.apply()
    return steps


async def plan_automations(
    client: PrefectClient,
    *,
    notification_block: str | None = None,
    silence: timedelta = SILENCE,
    declared: Sequence[Mapping[str, Any]] | None = None,
) -> list[Step]:
    """Compare each automation with what the server has under its name.

    Args:
        client: an open client of the server.
        notification_block: a notification block as `type-slug/name`, for example `slack-webhook/ops`;
            without one, that which an automation has is kept.
        silence: how long jobs-reconcile may complete no pass before the dead man's switch tells; 10 s at least.
        declared: other automations than those of automations.yaml.

    Raises:
        BadInput: the block does not exist.
        UnsafeAutomation: an automation could start itself, or fits every event.
    """
    block = None if notification_block is None else await _block_id(client, notification_block)
    automations = read_automations() if declared is None else declared
    for automation in automations:
        require_safe(automation)
    return [await _plan(client, automation, block, silence) for automation in automations]


def read_automations() -> list[dict[str, Any]]:
    """Return what automations.yaml declares."""
    text = files("durable_jobs.deployments").joinpath(FILE).read_text(encoding="utf-8")
    automations: list[dict[str, Any]] = yaml.safe_load(text)["automations"]
    return automations


def require_safe(automation: Mapping[str, Any]) -> None:
    """Refuse an automation that fits everything, or that what it starts could start again.

    Raises:
        UnsafeAutomation: naming it and what to change.
    """
    name, trigger = automation["name"], automation["trigger"]
    if not trigger.get("match") or not trigger.get("expect"):
        raise UnsafeAutomation(
            f"automation {name!r}: its trigger needs a match and an expect, or it fits every event there is"
        )
    if not any(action["type"] == "run-deployment" for action in automation["actions"]):
        return
    if _is_about_watched_runs(trigger):
        return
    own = [e for e in trigger["expect"] if any(_overlap(e, prefix) for prefix in _OURS)]
    if own:
        raise UnsafeAutomation(
            f"automation {name!r} starts a deployment on {', '.join(own)}: events of our own flows or of Prefect's"
            " could start it again and again; let it expect an event that others send"
        )


def _is_about_watched_runs(trigger: Mapping[str, Any]) -> bool:
    """Tell whether it fits only flow runs with the tag of watched deployments, which none of ours has."""
    related = trigger.get("match_related") or {}
    return related.get("prefect.resource.id") == f"prefect.tag.{TAG}" and all(
        expected.startswith("prefect.flow-run.") for expected in trigger["expect"]
    )


async def _plan(
    client: PrefectClient, automation: Mapping[str, Any], block: UUID | None, silence: timedelta
) -> Step:
    name = automation["name"]
    existing = await client.read_automations_by_name(name)
    named = block or _block_of(existing)
    if named is None and all("notification" in action for action in automation["actions"]):
        return Step("automation", name, Action.NOTE, "left out: it only notifies; see --notification-block")

    async def wanted() -> AutomationCore:
        return await _resolved(
            client, automation, named, silence, enabled=not existing or existing[0].enabled
        )

    async def create() -> None:
        await client.create_automation(await wanted())

    async def change() -> None:
        await client.update_automation(existing[0].id, await wanted())
        for twin in existing[1:]:
            await client.delete_automation(twin.id)

    if not existing:
        return Step("automation", name, Action.CREATE, "", create)
    try:
        changed = _differences(await wanted(), existing[0])
    except BadInput:
        changed = ["its deployment is new"]
    if changed or len(existing) > 1:
        return Step("automation", name, Action.CHANGE, ", ".join(changed or ["twins"]), change)
    detail = "" if existing[0].enabled else "disabled in Prefect, left so"
    return Step("automation", name, Action.UNCHANGED, detail)


async def _resolved(
    client: PrefectClient,
    automation: Mapping[str, Any],
    block: UUID | None,
    silence: timedelta,
    *,
    enabled: bool,
) -> AutomationCore:
    trigger = dict(automation["trigger"])
    if trigger["expect"] == _DEAD_MAN:
        trigger["within"] = silence.total_seconds()
    actions = [
        await _action(client, a, block) for a in automation["actions"] if block or "notification" not in a
    ]
    document = {**automation, "trigger": trigger, "actions": actions, "enabled": enabled}
    return AutomationCore.model_validate(document)


async def _action(client: PrefectClient, declared: Mapping[str, Any], block: UUID | None) -> dict[str, Any]:
    """Return an action as Prefect takes it, with ids instead of names."""
    action = dict(declared)
    if action.pop("notification", False):
        action["block_document_id"] = str(block)
    if (deployment := action.pop("deployment", None)) is not None:
        try:
            action["deployment_id"] = str((await client.read_deployment_by_name(deployment)).id)
        except ObjectNotFound as error:
            raise BadInput(
                f"deployment {deployment!r} does not exist on this Prefect server: apply the deployments first"
            ) from error
    return action


async def _block_id(client: PrefectClient, named: str) -> UUID:
    slug, _, name = named.partition("/")
    try:
        return (await client.read_block_document_by_name(name, slug)).id
    except ObjectNotFound as error:
        raise BadInput(
            f"notification block {named!r} does not exist: create it on the page Blocks and name it as"
            " type-slug/name, for example slack-webhook/ops"
        ) from error


def _block_of(existing: Iterable[Automation]) -> UUID | None:
    """Return the notification block that an automation of ours has."""
    actions = (action for automation in existing for action in automation.actions)
    return next(
        (action.block_document_id for action in actions if isinstance(action, SendNotification)), None
    )


def _differences(wanted: AutomationCore, found: Automation) -> list[str]:
    both = [one.model_dump(mode="json", include=set(_COMPARED)) for one in (wanted, found)]
    for document in both:
        for name, value in document["trigger"].items():
            # Sets come in any order; a trigger's id is the server's.
            document["trigger"][name] = sorted(value) if isinstance(value, list) else value
        document["trigger"].pop("id", None)
    return [name for name in _COMPARED if both[0][name] != both[1][name]]


def _overlap(expected: str, prefix: str) -> bool:
    """Tell whether an expected event, maybe with a star at its end, may begin with the prefix."""
    stem = expected.rstrip("*")
    return stem.startswith(prefix) or (expected.endswith("*") and prefix.startswith(stem))
