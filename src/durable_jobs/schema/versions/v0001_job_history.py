"""The tables: jobs, executors, bounds, events and effects, under row-level security.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_JOB_HISTORY = """
CREATE TABLE job_history (
    job_id uuid PRIMARY KEY,
    tenant_id text NOT NULL CHECK (tenant_id <> ''),
    job_type text NOT NULL,
    queue text NOT NULL,
    state text NOT NULL DEFAULT 'PENDING'
        CHECK (state IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'RETRIED', 'ABANDONED')),
    priority smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
    run_at timestamptz NOT NULL DEFAULT now(),
    payload jsonb NOT NULL,
    payload_version integer NOT NULL DEFAULT 1,
    payload_hash text NOT NULL,
    result jsonb,
    failed_reason text,
    idempotency_key text CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    correlation_id text,
    submitted_by text,
    retryable boolean NOT NULL DEFAULT true,
    retry_count integer NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    max_retries integer NOT NULL DEFAULT 3 CHECK (max_retries >= 0),
    timeout interval NOT NULL DEFAULT '1 hour' CHECK (timeout > '0'),
    parent_job_id uuid,
    retry_child_id uuid,
    root_job_id uuid NOT NULL,
    replay_of uuid,
    origin_job_id uuid,
    claim_token uuid,
    claim_count integer NOT NULL DEFAULT 0,
    crash_count integer NOT NULL DEFAULT 0,
    dispatch_count integer NOT NULL DEFAULT 0,
    pending_shard smallint,
    claim_order integer NOT NULL
        GENERATED ALWAYS AS (-2 * priority + CASE WHEN retry_count > 0 THEN 1 ELSE 0 END) STORED,
    executor_id uuid,
    flow_run_id uuid,
    task_run_id uuid,
    deadline_at timestamptz,
    cancel_requested_at timestamptz,
    progress jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    completed_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT live_or_completed CHECK ((state IN ('PENDING', 'RUNNING')) = (completed_at IS NULL)),
    CONSTRAINT running_is_claimed CHECK (
        state <> 'RUNNING' OR (claim_token IS NOT NULL AND executor_id IS NOT NULL AND deadline_at IS NOT NULL)
    ),
    CONSTRAINT pending_is_unclaimed CHECK (state <> 'PENDING' OR claim_token IS NULL),
    CONSTRAINT failed_has_reason CHECK (
        state NOT IN ('FAILED', 'RETRIED', 'ABANDONED') OR failed_reason IS NOT NULL
    ),
    CONSTRAINT retried_has_child CHECK ((state = 'RETRIED') = (retry_child_id IS NOT NULL)),
    CONSTRAINT counted_only_while_pending CHECK (state = 'PENDING' OR pending_shard IS NULL),
    CONSTRAINT root_is_self_or_older CHECK ((root_job_id = job_id) = (parent_job_id IS NULL))
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
)
"""

_INDEXES = (
    # The order of a claim. Queue and tenant in front, so that a claim reads only what it takes.
    "CREATE INDEX job_history_claim ON job_history (queue, tenant_id, claim_order, run_at, job_id)"
    " WHERE state = 'PENDING'",
    "CREATE INDEX job_history_running ON job_history (executor_id) WHERE state = 'RUNNING'",
    "CREATE INDEX job_history_suspects ON job_history (tenant_id, run_at) WHERE state = 'PENDING' AND crash_count > 0",
    "CREATE INDEX job_history_failed ON job_history (tenant_id, completed_at, job_id)"
    " WHERE state = 'FAILED' AND retryable",
    "CREATE UNIQUE INDEX job_history_idempotency ON job_history (tenant_id, idempotency_key)"
    " WHERE parent_job_id IS NULL AND replay_of IS NULL AND idempotency_key IS NOT NULL",
    "CREATE UNIQUE INDEX job_history_one_child ON job_history (parent_job_id) WHERE parent_job_id IS NOT NULL",
    # Roots find themselves by their primary key, so only retry children need an entry.
    "CREATE INDEX job_history_chain ON job_history (root_job_id) WHERE parent_job_id IS NOT NULL",
    "CREATE INDEX job_history_replay_of ON job_history (replay_of) WHERE replay_of IS NOT NULL",
    # What repeats an earlier chain keeps that chain's effects alive.
    "CREATE INDEX job_history_origin ON job_history (origin_job_id) WHERE origin_job_id IS NOT NULL",
    "CREATE INDEX job_history_page ON job_history (tenant_id, created_at, job_id)",
)

_SYSTEM_TABLES = (
    """
    CREATE TABLE job_executors (
        executor_id uuid PRIMARY KEY,
        host text NOT NULL,
        pid integer NOT NULL,
        queues text[] NOT NULL DEFAULT '{}',
        flow_run_id uuid,
        in_crew boolean NOT NULL DEFAULT true,
        started_at timestamptz NOT NULL DEFAULT now(),
        last_seen_at timestamptz NOT NULL DEFAULT now(),
        idle boolean NOT NULL DEFAULT false,
        draining boolean NOT NULL DEFAULT false
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE queue_leases (
        queue text NOT NULL,
        executor_id uuid NOT NULL REFERENCES job_executors ON DELETE CASCADE,
        held integer NOT NULL CHECK (held >= 0),
        updated_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (queue, executor_id)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE queue_pending (
        queue text NOT NULL,
        shard smallint NOT NULL CHECK (shard BETWEEN 0 AND 15),
        pending integer NOT NULL DEFAULT 0,
        PRIMARY KEY (queue, shard)
    ) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
            autovacuum_vacuum_cost_delay = 0)
    """,
    # What a claim could not take off a locked shard at once; folded into the shard later.
    """
    CREATE TABLE queue_pending_released (
        queue text NOT NULL,
        shard smallint NOT NULL,
        released integer NOT NULL CHECK (released > 0)
    )
    """,
    "CREATE INDEX queue_pending_released_queue ON queue_pending_released (queue, shard)",
    """
    CREATE TABLE paused (
        kind text NOT NULL CHECK (kind IN ('queue', 'type')),
        name text NOT NULL,
        since timestamptz NOT NULL DEFAULT now(),
        by text,
        PRIMARY KEY (kind, name)
    )
    """,
    # What the health checks said last, so that each change is said once.
    """
    CREATE TABLE health_states (
        target text NOT NULL,
        check_name text NOT NULL,
        failing boolean NOT NULL,
        announced boolean NOT NULL,
        since timestamptz NOT NULL,
        said_at timestamptz,
        severity text CHECK (severity IN ('CRITICAL', 'WARNING', 'INFO')),
        changes integer NOT NULL DEFAULT 0,
        PRIMARY KEY (target, check_name)
    )
    """,
)

_EVENTS_AND_EFFECTS = (
    """
    CREATE TABLE job_events (
        event_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        tenant_id text CHECK (tenant_id <> ''),
        event text NOT NULL,
        job_id uuid,
        severity text NOT NULL CHECK (severity IN ('CRITICAL', 'WARNING', 'INFO')),
        payload jsonb NOT NULL DEFAULT '{}',
        occurred_at timestamptz NOT NULL DEFAULT now(),
        published_at timestamptz
    ) WITH (autovacuum_vacuum_scale_factor = 0.02)
    """,
    "CREATE INDEX job_events_unpublished ON job_events (tenant_id, occurred_at) WHERE published_at IS NULL",
    "CREATE INDEX job_events_job ON job_events (job_id) WHERE job_id IS NOT NULL",
    """
    CREATE TABLE job_effects (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        tenant_id text NOT NULL CHECK (tenant_id <> ''),
        key text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
        effect_type text NOT NULL CHECK (length(effect_type) BETWEEN 1 AND 100),
        job_id uuid NOT NULL,
        root_job_id uuid NOT NULL,
        state text NOT NULL CHECK (state IN ('RESERVED', 'CONFIRMED', 'UNKNOWN')),
        claim_token uuid,
        reservation uuid NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        confirmed_at timestamptz,
        result jsonb,
        UNIQUE (tenant_id, key, effect_type),
        CONSTRAINT reserved_is_claimed CHECK (state <> 'RESERVED' OR claim_token IS NOT NULL),
        CONSTRAINT confirmed_has_time CHECK ((state = 'CONFIRMED') = (confirmed_at IS NOT NULL))
    )
    """,
    "CREATE INDEX job_effects_chain ON job_effects (root_job_id)",
    "CREATE INDEX job_effects_age ON job_effects (tenant_id, created_at)",
    "CREATE INDEX job_effects_open ON job_effects (tenant_id, created_at) WHERE state <> 'CONFIRMED'",
)

_TENANTS = "(SELECT nullif(current_setting('durable_jobs.tenant_ids', true), '')::text[])::text[]"
_MINE = f"tenant_id = ANY ({_TENANTS})"


def upgrade() -> None:
    """Create everything; roles and functions are applied by `durable_jobs.schema.migrate`."""
    for statement in (_JOB_HISTORY, *_INDEXES, *_SYSTEM_TABLES, *_EVENTS_AND_EFFECTS):
        op.execute(statement)
    for table, mine in (
        ("job_history", _MINE),
        ("job_effects", _MINE),
        ("job_events", f"tenant_id IS NULL OR {_MINE}"),
    ):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY tenants_of_this_transaction ON {table} USING ({mine}) WITH CHECK ({mine})")


def downgrade() -> None:
    """Drop everything, the functions that use the tables included."""
    for table in (
        "job_effects", "job_events", "health_states", "paused", "queue_pending_released", "queue_pending",
        "queue_leases", "job_executors", "job_history",
    ):  # fmt: skip
        op.execute(f"DROP TABLE {table} CASCADE")
