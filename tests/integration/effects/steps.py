"""Job types for executors that are killed: three effects, and a payment. Loaded by path, in their process.

An order names the moment at which its job stops and waits to be killed, if STOP is set: what was
committed then is what survives.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import httpx
import psycopg
from pydantic import BaseModel

from durable_jobs import JobContext, Queue, Skipped, job_type

steps = Queue("steps", concurrency=10)


class Order(BaseModel):
    """What is ordered."""

    number: int
    stop_at: str = ""
    policy: str = "stop"

    def is_at(self, moment: str) -> bool:
        """Tell whether to stop here, and leave a sign that this moment is reached."""
        if "STOP" not in os.environ or self.stop_at != moment:
            return False
        Path(os.environ["STOP"], str(self.number)).touch()
        return True


@job_type("THREE_EFFECTS", queue="steps", visibility="history", max_retries=5)
async def three_effects(request: Order, context: JobContext) -> Any:
    """A mail, a call, a row; each once for the order."""
    already = []
    for step in ("mail", "call"):
        async with context.effect(step) as effect:
            already.append(effect.already_done)
            if not effect.already_done:
                order = {"what": f"{step} {request.number}", "key": effect.provider_key}
                async with httpx.AsyncClient() as client:
                    await client.post(os.environ["PROVIDER"], json=order)
        if request.is_at(f"after {step}"):
            await anyio.sleep_forever()
    async with await psycopg.AsyncConnection.connect(os.environ["LETTERS"]) as connection:
        async with context.effect("row", connection=connection) as effect:
            already.append(effect.already_done)
            if not effect.already_done:
                await connection.execute("INSERT INTO letters (words) VALUES (%s)", [str(request.number)])
        if request.is_at("before the commit of row"):
            await anyio.sleep_forever()
    if request.is_at("after row"):
        await anyio.sleep_forever()
    return Skipped("everything was done") if all(already) else None


@job_type("PAYMENT", queue="steps", visibility="history", max_retries=5)
def payment(request: Order, context: JobContext) -> Any:
    """One payment through the provider."""
    options: dict[str, Any] = {"on_unknown": "repeat"} if request.policy == "repeat" else {}
    if request.policy == "probe":
        options["probe"] = was_paid
    with context.effect(f"order {request.number}", "PAYMENT", **options) as effect:
        if effect.already_done:
            return Skipped("paid", effect.original_job_id)
        if request.is_at("before the call"):
            Event().wait()
        order = {"what": f"payment {request.number}", "key": effect.provider_key}
        httpx.post(os.environ["PROVIDER"], json=order)
        if request.is_at("before the confirmation"):
            Event().wait()
    return None


async def was_paid(effect: Any) -> bool:
    """Ask the provider."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{os.environ['PROVIDER']}/{effect.provider_key}")
    return answer.status_code == 200
