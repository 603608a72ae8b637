-- Writes outcomes under the fence: only the claim that holds the token may end the job.
-- Returns the outcomes that were not written: 'repeated' when this very outcome is already there
-- (the answer to an earlier call was lost), else 'late' (recorded as an event).
CREATE OR REPLACE FUNCTION finish_jobs(p_tenants text[], p_outcomes jsonb, p_now timestamptz)
RETURNS TABLE (job_id uuid, why text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_rows tid[];
    v_numbers integer[];
BEGIN
    PERFORM set_tenants(p_tenants);
    -- By the primary key, never through the index of running jobs: that one is all dead entries.
    SELECT coalesce(array_agg(j.row), '{}'), coalesce(array_agg(o.n), '{}') INTO v_rows, v_numbers
    FROM (
        -- Locked in one order, as note_progress does: the two run side by side.
        SELECT * FROM jsonb_to_recordset(p_outcomes) AS r (n integer, job_id uuid, claim_token uuid)
        ORDER BY r.job_id
    ) o
    CROSS JOIN LATERAL (
        SELECT h.ctid AS row FROM job_history h
        WHERE h.job_id = o.job_id AND h.completed_at IS NULL AND h.claim_token = o.claim_token
        FOR UPDATE
    ) j;
    WITH ended AS (
        UPDATE job_history h SET
            state = o.state, result = o.result, failed_reason = o.failed_reason,
            retryable = h.retryable AND o.retryable, task_run_id = coalesce(o.task_run_id, h.task_run_id),
            completed_at = v_now, updated_at = v_now
        FROM unnest(v_rows, v_numbers) AS hit (row, n)
        JOIN jsonb_to_recordset(p_outcomes) AS o (
            n integer, state text, result jsonb, failed_reason text, retryable boolean, task_run_id uuid) ON o.n = hit.n
        WHERE h.ctid = hit.row
        RETURNING h.*
    )
    INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
    SELECT e.tenant_id, 'jobs.job.' || lower(e.state), e.job_id,
           CASE e.state WHEN 'FAILED' THEN 'WARNING' ELSE 'INFO' END, event_payload(e), v_now
    FROM ended e WHERE e.state <> 'SUCCEEDED';
    IF cardinality(v_rows) < jsonb_array_length(p_outcomes) THEN
        RETURN QUERY
            WITH unwritten AS MATERIALIZED (
                SELECT o.job_id, o.claim_token, o.state AS outcome, h.*
                FROM jsonb_to_recordset(p_outcomes) AS o (n integer, job_id uuid, claim_token uuid, state text)
                LEFT JOIN LATERAL (
                    SELECT j.tenant_id, j.claim_token AS token, j.state, j.completed_at FROM job_history j
                    WHERE j.job_id = o.job_id
                ) h ON true
                WHERE o.n <> ALL (v_numbers)
            ), recorded AS (
                INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
                SELECT u.tenant_id, 'jobs.job.late_result', u.job_id, 'WARNING',
                       jsonb_build_object('outcome', u.outcome, 'state', u.state), v_now
                FROM unwritten u
                WHERE u.tenant_id IS NOT NULL
                  AND NOT (u.token = u.claim_token AND u.state = u.outcome AND u.completed_at IS NOT NULL)
            )
            SELECT u.job_id,
                   CASE WHEN u.token = u.claim_token AND u.state = u.outcome THEN 'repeated' ELSE 'late' END
            FROM unwritten u;
    END IF;
END
$$;
