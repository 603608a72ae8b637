"""Modules are looked at for what they declare, whatever else they hold."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pydantic import BaseModel

from durable_jobs import JobContext, Queue, job_type
from durable_jobs.registry import Registry


class Request(BaseModel):
    """What is asked."""


class Proxy:
    """As web frameworks have them: there is nothing behind it now, and whoever asks is told so loudly."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"{name}: working outside of application context")


def test_a_module_may_hold_things_that_cannot_be_asked() -> None:
    @job_type("GREET", queue="greetings")
    async def greet(request: Request, context: JobContext) -> None: ...

    module = ModuleType("theirs")
    vars(module).update(current_app=Proxy(), greet=greet, greetings=Queue("greetings"), Request=Request)
    found = Registry.from_modules([module])
    assert found.job_types.keys() == {"GREET"}
    assert "greetings" in found.queues
