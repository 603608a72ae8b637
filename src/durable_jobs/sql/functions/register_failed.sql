-- Keeps failures of flow runs as FAILED jobs, each once. A failure has its job already when its key is
-- known, or when an earlier failure of its run is kept by a chain that was not cancelled and had not
-- succeeded when it happened.
-- Returns the job of each request and whether it was made now. The requests of a call have distinct keys.
CREATE OR REPLACE FUNCTION register_failed(
    p_tenant text, p_jobs jsonb, p_by text, p_each integer, p_now timestamptz
) RETURNS TABLE (n integer, kept_by uuid, created boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_new uuid[];
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    -- Two who found the same run wait for each other, also when they saw it at different attempts.
    PERFORM pg_advisory_xact_lock(k.lock) FROM (
        SELECT DISTINCT hashtextextended(p_tenant || ' flow run ' || r.flow_run_id, 0) AS lock
        FROM jsonb_to_recordset(p_jobs) AS r (flow_run_id text) ORDER BY 1) k;
    WITH inserted AS (
        INSERT INTO job_history (
            job_id, tenant_id, job_type, queue, state, priority, payload, payload_version, payload_hash,
            failed_reason, idempotency_key, correlation_id, submitted_by, retryable, max_retries, timeout,
            root_job_id, flow_run_id, run_at, created_at, completed_at, updated_at)
        SELECT r.job_id, p_tenant, r.job_type, r.queue, 'FAILED', r.priority, r.payload, r.payload_version,
               r.payload_hash, r.reason, r.idempotency_key, r.correlation_id, r.submitted_by, r.retryable,
               r.max_retries, r.timeout, r.job_id, r.flow_run_id, v_now, v_now, v_now, v_now
        FROM jsonb_to_recordset(p_jobs) AS r (
            n integer, job_id uuid, job_type text, queue text, priority smallint, payload jsonb,
            payload_version integer, payload_hash text, reason text, idempotency_key text, correlation_id text,
            submitted_by text, retryable boolean, max_retries integer, timeout interval, flow_run_id uuid,
            failed_at timestamptz)
        WHERE NOT EXISTS (
            SELECT FROM job_history j
            CROSS JOIN LATERAL (
                SELECT c.state, c.completed_at FROM job_history c
                WHERE c.job_id = j.job_id OR (c.root_job_id = j.job_id AND c.parent_job_id IS NOT NULL)
                ORDER BY c.retry_count DESC LIMIT 1
            ) chain
            WHERE j.tenant_id = p_tenant AND j.flow_run_id = r.flow_run_id AND j.job_type = r.job_type
              AND j.parent_job_id IS NULL
              AND (chain.state NOT IN ('CANCELLED', 'SUCCEEDED') OR chain.completed_at >= r.failed_at))
        ORDER BY r.n
        ON CONFLICT (tenant_id, idempotency_key)
            WHERE parent_job_id IS NULL AND replay_of IS NULL AND idempotency_key IS NOT NULL DO NOTHING
        RETURNING job_id
    )
    SELECT coalesce(array_agg(i.job_id), '{}') INTO v_new FROM inserted i;
    IF cardinality(v_new) > 0 THEN
        PERFORM tell_jobs(p_tenant, 'jobs.job.failed', 'WARNING', v_new, '{}', p_by, p_each, v_now);
    END IF;
    RETURN QUERY
        SELECT r.n, coalesce(known.job_id, latest.job_id), coalesce(known.job_id = ANY (v_new), false)
        FROM jsonb_to_recordset(p_jobs) AS r (n integer, idempotency_key text, flow_run_id uuid, job_type text)
        LEFT JOIN job_history known ON known.tenant_id = p_tenant AND known.idempotency_key = r.idempotency_key
            AND known.parent_job_id IS NULL AND known.replay_of IS NULL
        LEFT JOIN LATERAL (
            SELECT j.job_id FROM job_history j
            WHERE j.tenant_id = p_tenant AND j.flow_run_id = r.flow_run_id AND j.job_type = r.job_type
              AND j.parent_job_id IS NULL
            ORDER BY j.created_at DESC LIMIT 1
        ) latest ON true;
END
$$;
