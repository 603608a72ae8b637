"""Effects that happen once: a payment at a bank that can be asked, and a mail that may be sent again.

export DURABLE_JOBS_MODULES=examples/payments.py
durable-jobs submit PAY_ORDER '{"number": 7, "amount": "12.50"}' --wait --json
durable-jobs submit PAY_ORDER '{"number": 7, "amount": "12.50"}' --wait --json     # SKIPPED: it is paid
durable-jobs submit PAY_ORDER '{"number": 8, "amount": "5000"}' --wait             # refused, so not paid
durable-jobs effects list

The bank is a folder: each payment is a file in it, named by the key that we give.
"""

import os
from decimal import Decimal
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from pydantic import BaseModel, Field

from durable_jobs import Effect, EffectNotMade, JobContext, Skipped, job_type

BANK = Path(os.environ.get("BANK", Path(gettempdir()) / "durable-jobs-bank"))


class PayOrder(BaseModel):
    """What is asked."""

    number: int = Field(ge=1)
    amount: Decimal = Field(gt=0)


@job_type("PAY_ORDER", max_retries=3)
async def pay_order(request: PayOrder, context: JobContext) -> Any:
    """Pay an order, then tell; each once for the order, whatever fails in between."""
    order = f"order {request.number}"

    # If the answer is lost, the bank is asked before anything is paid again.
    async with context.effect(order, "PAYMENT", probe=was_paid) as payment:
        if not payment.already_done:
            pay(payment.provider_key, request.amount)
            payment.result = {"reference": payment.provider_key}

    # Nobody can be asked about a mail; two are better than none.
    async with context.effect(order, "MAIL", on_unknown="repeat") as mail:
        if mail.already_done:
            return Skipped("it is paid and told", mail.original_job_id)
        context.logger.info("to the customer: order %s is paid, reference %s", request.number, payment.result)
    return payment.result


def pay(key: str, amount: Decimal) -> None:
    """Pay at the bank, which refuses large amounts before anything is done."""
    if amount > 1_000:
        raise EffectNotMade(f"the bank refuses {amount}: more than 1000 at once")
    BANK.mkdir(exist_ok=True)
    (BANK / key).write_text(f"{amount}\n", encoding="utf-8")


async def was_paid(effect: Effect) -> bool:
    """Ask the bank."""
    return (BANK / effect.provider_key).exists()
