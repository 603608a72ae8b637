"""Every error of the product has one root, and its message tells the way out."""

from __future__ import annotations


class DurableJobsError(Exception):
    """Something about durable-jobs went wrong; the message says what to do."""

    exit_code = 1
    """Exit code of the command line: 1 no, 2 bad input, 3 refused for now, 4 the store is away."""


class BadInput(DurableJobsError):
    """What was asked for cannot be right; asking again unchanged does not help."""

    exit_code = 2


class UnknownJobType(BadInput):
    """No job type of this name is declared."""


class UnknownQueue(BadInput):
    """No queue of this name is declared."""


class InvalidDeclaration(BadInput):
    """A job type or a queue is declared in a way that cannot work."""


class ModuleNotLoadable(BadInput):
    """A module named in DURABLE_JOBS_MODULES cannot be imported."""


class InvalidPayload(BadInput):
    """The payload does not fit the job type's model, or would not come back as the same value."""


class PayloadTooLarge(BadInput):
    """The payload is over the limit of bytes or of nesting."""


class IdempotencyConflict(BadInput):
    """The idempotency key is already used for another request."""


class MissingTenant(BadInput):
    """A write was tried outside of a tenant's scope."""


class InvalidSettings(BadInput):
    """A setting has a value that cannot work."""


class UnsafeDatabaseRole(BadInput):
    """The database role bypasses row-level security, so tenants would not be isolated."""


class SchemaOutdated(BadInput):
    """The database has no durable-jobs schema, or one of another version."""


class QueueFull(DurableJobsError):
    """The queue holds as many waiting jobs as it may."""

    exit_code = 3

    def __init__(self, queue: str, max_pending: int, wanted: int = 1) -> None:
        """Name the queue, its bound and what to do."""
        self.queue = queue
        self.max_pending = max_pending
        super().__init__(
            f"queue {queue!r} is full: it may hold {max_pending} waiting jobs and has no room for {wanted} more;"
            f" try again when jobs have been executed, or raise max_pending in Queue({queue!r}, ...)"
        )


class StoreUnavailable(DurableJobsError):
    """The database does not answer."""

    exit_code = 4


class JobNotFound(DurableJobsError):
    """There is no such job in this tenant."""


class EffectNotFound(DurableJobsError):
    """There is no such effect in this tenant."""


class NotAllowed(DurableJobsError):
    """The job's state does not allow this."""


class NotRetryable(Exception):
    """Raise it in a processor: the job fails and is never retried.

    The reason ends in `failed_reason`; a person may still resubmit the job.
    """


class CalledOff(Exception):
    """Raise it in a processor: what the job stands for was called off elsewhere.

    The job is CANCELLED, with the reason.
    """


class RetentionTooShort(BadInput):
    """What is to be purged is younger than the floor allows."""


class PurgeRefused(DurableJobsError):
    """A purge would have taken something that is not due, so it took nothing."""


class PurgeUnderWay(DurableJobsError):
    """Another purge is at work."""

    exit_code = 3


class RetentionViolated(DurableJobsError):
    """Something due is left, or something not due went."""

    def __init__(self, message: str, *, early: bool) -> None:
        """Say whether something went too early, which is worse than something left."""
        self.early = early
        super().__init__(message)
