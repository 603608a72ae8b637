"""Any mixture of what callers, executors, people and the reconciler do; every invariant after each step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from uuid_utils.compat import uuid7

from durable_jobs.errors import IdempotencyConflict, NotAllowed, QueueFull
from durable_jobs.jobs import ClaimedJob, Job, Outcome
from durable_jobs.retention.walking import Pace, walk
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Claim, Decision, Executor, Note
from durable_jobs.stores.retention import Limits
from durable_jobs.tenants import job_tenant_scope
from tests.property.invariants import Rows, check_change, check_counters, check_rows, check_told, due_jobs
from tests.property.worlds import World
from tests.support.jobs import QUEUE, new_job

TENANTS = ("a", "b", "c")
MAX_PENDING = 12
MAX_CRASHES = 3
HOUR = timedelta(hours=1)

tenants = st.sampled_from(TENANTS)
numbers = st.integers(0, 10_000)
executors = st.integers(0, 2)


class JobsMachine(RuleBasedStateMachine):
    """Drives one store; subclasses name their world."""

    world: ClassVar[World]

    @initialize(lively=st.integers(0, 3))
    def begin(self, lively: int) -> None:
        self.world.reset()
        self.store = self.world.store
        self.before: Rows = {}
        self.events: Counter[UUID] = Counter()
        self.steps = 0
        self.now = datetime.now(UTC)
        self.claims: list[ClaimedJob] = []
        self.tokens: set[UUID] = set()
        self.executors = [uuid7() for _ in range(3)]
        for executor in self.executors:
            self.run(self.store.enter_executor(Executor(executor, "host", 1, (QUEUE,))))
        if lively:
            self.begin_amid_work()

    def begin_amid_work(self) -> None:
        """Have a job in most states, and claims that are stale."""
        for tenant in TENANTS:
            with job_tenant_scope(tenant):
                requests = [new_job({"data": 0}, job_type="TYPE0", max_retries=2) for _ in range(4)]
                self.run(self.store.register_idempotent(requests))
        self.take(self.run(self.store.claim(self.executors[0], QUEUE, 5)))
        done, dead, retried, *released = self.claims
        states = (JobState.SUCCEEDED, JobState.FAILED, JobState.FAILED)
        ended = [self.outcome(*pair) for pair in zip((done, dead, retried), states, strict=True)]
        self.run(self.store.finish(ended))
        with job_tenant_scope(retried.tenant_id):
            self.run(self.store.retry(retried.job_id, max_pending=MAX_PENDING))
        self.run(self.store.release([(claim, True) for claim in released], "worker shut down"))
        self.take(self.run(self.store.claim(self.executors[1], QUEUE, 2)))
        self.before = self.rows()
        self.events = self.told()

    # What callers do.

    @rule(
        tenant=tenants,
        key=st.sampled_from([None, "k1", "k2"]),
        n=st.integers(1, 3),
        data=st.integers(0, 1),
        priority=st.integers(-1, 1),
        delayed=st.booleans(),
        max_retries=st.integers(0, 2),
    )
    def register(
        self, tenant: str, key: str | None, n: int, data: int, priority: int, delayed: bool, max_retries: int
    ) -> None:
        requests = [
            new_job(
                {"data": data},
                job_type=f"TYPE{data}",
                priority=priority,
                run_at=self.now + HOUR if delayed else None,
                idempotency_key=key if position == 0 else None,
                max_pending=MAX_PENDING,
                max_retries=max_retries,
            )
            for position in range(n)
        ]
        rows = self.rows()
        try:
            with job_tenant_scope(tenant):
                answers = self.run(self.store.register_idempotent(requests))
        except QueueFull:
            waiting = sum(row["pending_shard"] is not None for row in rows.values())
            assert waiting + n > MAX_PENDING, "refused although there is room"
            assert self.rows() == rows
        except IdempotencyConflict:
            assert self.rows() == rows
        else:
            assert [a.created for a in answers] == [a.job.job_id not in rows for a in answers]
            assert all(answer.job.tenant_id == tenant for answer in answers)

    @precondition(lambda self: self.before)
    @rule(pick=numbers)
    def update(self, pick: int) -> None:
        job, stop = self.any_job(pick, "PENDING", "RUNNING"), pick % 4 == 0
        self.asked_for(
            job, lambda job_id: self.store.update(job_id, progress={"n": pick}, request_cancel=stop)
        )

    @precondition(lambda self: self.before)
    @rule(pick=numbers)
    def cancel(self, pick: int) -> None:
        job = self.any_job(pick, "SUCCEEDED", "PENDING", "RUNNING", "FAILED")
        self.asked_for(job, lambda job_id: self.store.cancel(job_id))

    @precondition(lambda self: self.before)
    @rule(pick=numbers)
    def retry(self, pick: int) -> None:
        job = self.any_job(pick, "FAILED", "RETRIED")
        self.asked_for(job, lambda job_id: self.store.retry(job_id, max_pending=MAX_PENDING))

    @precondition(lambda self: self.before)
    @rule(pick=numbers)
    def resubmit(self, pick: int) -> None:
        job = self.any_job(pick, "FAILED", "ABANDONED")
        self.asked_for(job, lambda job_id: self.store.resubmit(job_id, max_pending=MAX_PENDING))

    # What executors do.

    @rule(executor=executors, limit=st.integers(1, 8), after=st.sampled_from(["", *TENANTS]))
    def claim(self, executor: int, limit: int, after: str) -> None:
        rows = self.rows()
        answer = self.run(
            self.store.claim(self.executors[executor], QUEUE, limit, after_tenant=after, now=self.now)
        )
        self.take(answer)
        self.check_claim(rows, answer, limit)

    @rule(limit=st.integers(2, 4))
    def claim_some(self, limit: int) -> None:
        self.claim(0, limit, "")

    @precondition(lambda self: self.claims)
    @rule(executor=executors, limit=st.integers(1, 8))
    def claim_from_fronts(self, executor: int, limit: int) -> None:
        rows = self.rows()
        waiting = [row for row in rows.values() if row["state"] == "PENDING"]
        answer = self.run(self.store.claim(self.executors[executor], QUEUE, limit, now=self.now))
        fronts = answer.fronts
        self.take(answer)
        cheap = self.run(
            self.store.claim(self.executors[executor], QUEUE, limit, fronts=fronts, now=self.now)
        )
        self.steps += 1
        self.take(cheap)
        assert len(cheap.jobs) <= limit
        assert len(answer.jobs) + len(cheap.jobs) <= len(waiting)

    @precondition(lambda self: self.before)
    @rule(executor=executors, pick=numbers)
    def claim_one(self, executor: int, pick: int) -> None:
        job = self.any_job(pick, "PENDING")
        claimed = self.run(
            self.store.claim_job(self.executors[executor], job["tenant_id"], job["job_id"], now=self.now)
        )
        held_back = {(paused.kind, paused.name) for paused in self.run(self.store.paused())}
        may = (
            job["state"] == "PENDING"
            and job["run_at"] <= self.now
            and not held_back & {("queue", job["queue"]), ("type", job["job_type"])}
        )
        assert (claimed is not None) == may
        if claimed is not None:
            self.take(Claim([claimed], []))

    @precondition(lambda self: self.claims)
    @rule(pick=numbers, state=st.sampled_from(["SUCCEEDED", "FAILED", "CANCELLED"]), final=st.booleans())
    def finish(self, pick: int, state: str, final: bool) -> None:
        claim = self.any_claim(pick)
        before = self.rows()[claim.job_id]
        [*unwritten] = self.run(self.store.finish([self.outcome(claim, JobState(state), final=final)]))
        after = self.rows()[claim.job_id]
        if before["state"] == "RUNNING" and before["claim_token"] == claim.claim_token:
            assert unwritten == []
            assert after["state"] == state
        else:
            assert after == before, "the fence did not hold"
            assert [one.job_id for one in unwritten] == [claim.job_id]
            repeated = before["claim_token"] == claim.claim_token and before["state"] == state
            assert unwritten[0].why == ("repeated" if repeated else "late")

    @precondition(lambda self: self.claims)
    @rule(pick=numbers)
    def note(self, pick: int) -> None:
        claim = self.any_claim(pick)
        before = self.rows()[claim.job_id]
        self.run(self.store.note([Note(claim, '{"current": 1}')]))
        if before["claim_token"] != claim.claim_token:
            assert self.rows()[claim.job_id] == before, "the fence did not hold"

    @precondition(lambda self: self.claims)
    @rule(pick=numbers, again=st.booleans())
    def release(self, pick: int, again: bool) -> None:
        claim = self.any_claim(pick)
        before = self.rows()[claim.job_id]
        self.run(self.store.release([(claim, again)], "worker shut down"))
        if before["claim_token"] != claim.claim_token:
            assert self.rows()[claim.job_id] == before, "the fence did not hold"

    @precondition(lambda self: self.claims)
    @rule(picks=st.lists(numbers, min_size=2, max_size=6), executor=executors)
    def race(self, picks: list[int], executor: int) -> None:
        """Several workers at once: claims, outcomes and notes of the same jobs."""
        claims = [self.any_claim(pick) for pick in picks]
        states = (JobState.SUCCEEDED, JobState.FAILED)
        work: list[Coroutine[Any, Any, Any]] = [
            self.store.finish([self.outcome(claim, states[n % 2]) for claim in claims]) for n in range(2)
        ]
        work += [
            self.store.claim(self.executors[(executor + n) % 3], QUEUE, 3, now=self.now) for n in range(3)
        ]
        work.append(self.store.note([Note(claim, '{"current": 2}') for claim in claims]))
        work.append(self.store.release([(claim, True) for claim in reversed(claims)], "worker shut down"))
        answers = self.run(_all(work))
        self.steps += 4
        taken = [job for claim in answers[2:5] for job in claim.jobs]
        # A job that was released in between may be taken twice, each time under a fence of its own.
        assert len({job.claim_token for job in taken}) == len(taken)
        for answer in answers[2:5]:
            self.take(answer)

    # What the reconciler and people on duty do.

    @precondition(lambda self: self.before)
    @rule(dead=st.sets(executors, min_size=1), pick=numbers, again=st.booleans(), limit=st.integers(1, 4))
    def settle_orphans(self, dead: set[int], pick: int, again: bool, limit: int) -> None:
        rows = self.rows()
        tenant = self.any_job(pick, "RUNNING")["tenant_id"]
        silent = [self.executors[n] for n in dead]

        def decide(job: Job) -> Decision:
            assert job.executor_id in silent
            return Decision(replay=again)

        settled = self.run(
            self.store.settle_orphans(tenant, silent, decide, max_crashes=MAX_CRASHES, limit=limit)
        )
        assert len(settled) <= limit
        after = self.rows()
        for job_id, state in settled.items():
            assert rows[job_id]["state"] == "RUNNING"
            assert after[job_id]["state"] == state
            assert after[job_id]["crash_count"] == rows[job_id]["crash_count"] + 1

    @precondition(lambda self: any(row["completed_at"] for row in self.before.values()))
    @rule(pick=numbers, rows_of_a_page=st.integers(1, 4))
    def purge(self, pick: int, rows_of_a_page: int) -> None:
        """What ended before some job did goes, chain by chain; what is listed before is what goes."""
        rows = self.rows()
        ended = sorted(row["completed_at"] for row in rows.values() if row["completed_at"])
        moment = ended[pick % len(ended)]
        limits = Limits(self.now, moment, moment)
        due = due_jobs(rows, moment)
        for tenant in TENANTS:
            listed = self.run(self.store.list_due_jobs(tenant, limits, limit=len(rows) + 1))
            assert listed.due == sum(rows[job_id]["tenant_id"] == tenant for job_id in due), "wrongly listed"
            self.run(self.purge_all(tenant, limits, rows_of_a_page))
        left = self.rows()
        assert rows.keys() - left.keys() == due, "something else went, or something due is left"
        assert all(left[job_id] == rows[job_id] for job_id in left), "a purge changed what stays"
        late = [claim for claim in self.claims if claim.job_id in due]
        unwritten = self.run(self.store.finish([self.outcome(claim, JobState.SUCCEEDED) for claim in late]))
        assert len(unwritten) == len(late), "an outcome of a purged job was taken"
        assert self.rows() == left, "a purged job came back"
        self.claims = [claim for claim in self.claims if claim.job_id not in due]
        self.before = left

    async def purge_all(self, tenant: str, limits: Limits, rows_of_a_page: int) -> None:
        async for _ in walk(
            lambda after, limit: self.store.purge("jobs", None, tenant, limits, after=after, limit=limit),
            Pace(rows_of_a_page, rows_of_a_page),
        ):
            pass

    @rule(limit=st.integers(1, 3))
    def fail_overdue(self, limit: int) -> None:
        rows = self.rows()
        failed = self.run(self.store.fail_overdue(margin=timedelta(0), limit=limit, now=self.now))
        assert len(failed) <= limit
        for row in (rows[job_id] for job_id in failed):
            assert min(row["deadline_at"], row["cancel_requested_at"] or row["deadline_at"]) < self.now

    @rule(kind=st.sampled_from([("queue", QUEUE), ("type", "TYPE0"), ("type", "TYPE1")]), pick=numbers)
    def pause(self, kind: tuple[str, str], pick: int) -> None:
        # Rarely: while a queue is paused, little else happens.
        if pick % 3 == 0:
            self.run(self.store.pause(*kind))

    @rule()
    def resume_all(self) -> None:
        for paused in self.run(self.store.paused()):
            self.run(self.store.resume(paused.kind, paused.name))

    @rule(hours=st.sampled_from([0.5, 2]))
    def time_passes(self, hours: float) -> None:
        self.now += timedelta(hours=hours)

    # What is checked after each step.

    @invariant()
    def every_promise_holds(self) -> None:
        if not hasattr(self, "before"):
            return
        after = self.rows()
        told = self.told()
        check_rows(after)
        check_change(self.before, after, steps=max(self.steps, 1))
        if self.steps <= 1:
            check_told(self.before, after, told - self.events)
        check_counters(after, self.world.probe.counted(QUEUE), QUEUE, MAX_PENDING)
        self.before, self.events, self.steps = after, told, 0

    def check_claim(self, rows: Rows, answer: Claim, limit: int) -> None:
        """Check order, turns and bounds of one claim against the rows before it."""
        held_back = {(paused.kind, paused.name) for paused in self.run(self.store.paused())}
        waiting = [row for row in rows.values() if row["state"] == "PENDING"]
        due = [
            row
            for row in waiting
            if row["run_at"] <= self.now
            and row["crash_count"] == 0
            and ("queue", QUEUE) not in held_back
            and ("type", row["job_type"]) not in held_back
        ]
        assert len(answer.jobs) <= limit
        assert [job.job_id for job in answer.jobs] == [
            row["job_id"] for row in sorted((rows[job.job_id] for job in answer.jobs), key=_rank)
        ], "wrong order"
        share = limit // max(len({row["tenant_id"] for row in waiting}), 1)
        for tenant in TENANTS:
            mine = sorted((row for row in due if row["tenant_id"] == tenant), key=_rank)
            got = [job.job_id for job in answer.jobs if job.tenant_id == tenant]
            assert got == [row["job_id"] for row in mine[: len(got)]], "wrong order"
            assert len(got) >= min(share, len(mine)), f"{tenant} missed its turn"

    def take(self, answer: Claim) -> None:
        for job in answer.jobs:
            assert job.claim_token not in self.tokens, "a fence was used twice"
            self.tokens.add(job.claim_token)
        self.claims += answer.jobs

    def asked_for(self, job: Any, ask: Any) -> None:
        """Ask for something that the job's state may not allow; a refusal changes nothing."""
        before = self.rows()
        try:
            with job_tenant_scope(job["tenant_id"]):
                self.run(ask(job["job_id"]))
        except (NotAllowed, QueueFull):
            assert self.rows() == before, "a refusal changed something, perhaps a terminal row changed"

    def outcome(self, claim: ClaimedJob, state: JobState, *, final: bool = False) -> Outcome:
        result = '{"status": "OK"}' if state is JobState.SUCCEEDED else None
        reason = "ValueError: no" if state is JobState.FAILED else None
        return Outcome(claim, state, result, reason, not final)

    def any_job(self, pick: int, *states: str) -> Any:
        """Return a job, three times of four one in a state where something is to be expected."""
        rows = sorted(self.before.values(), key=lambda row: row["job_id"])
        liked = states[pick % len(states)]
        fitting = [row for row in rows if row["state"] == liked and pick % 4]
        return (fitting or rows)[pick // 4 % len(fitting or rows)]

    def any_claim(self, pick: int) -> ClaimedJob:
        """Return a claim, every other time one that is stale."""
        rows = self.before
        stale = [claim for claim in self.claims if rows[claim.job_id]["claim_token"] != claim.claim_token]
        fitting = stale if stale and pick % 2 else self.claims[-8:]
        return fitting[pick // 2 % len(fitting)]

    def told(self) -> Counter[UUID]:
        """Return how many events tell of each job's changes."""
        beside = ("jobs.job.late_result", "jobs.job.resubmitted")
        return Counter(e["job_id"] for e in self.world.probe.events() if e["event"] not in beside)

    def rows(self) -> Rows:
        return {row["job_id"]: row for row in self.world.probe.jobs()}

    def run(self, work: Any) -> Any:
        return self.world.run(work)


async def _all(work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*work)


def _rank(row: Any) -> tuple[int, datetime, UUID]:
    return -2 * row["priority"] + (row["retry_count"] > 0), row["run_at"], row["job_id"]
