-- Gives running jobs back when their executor stops: to the queue where their type may run again,
-- else as failed, or cancelled if that was asked for. Not charged as a crash.
CREATE OR REPLACE FUNCTION release_jobs(
    p_tenants text[], p_jobs jsonb, p_reason text, p_now timestamptz
) RETURNS TABLE (job_id uuid, state text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
BEGIN
    PERFORM set_tenants(p_tenants);
    RETURN QUERY
        WITH given AS MATERIALIZED (
            SELECT h.job_id, g.replay AND h.cancel_requested_at IS NULL AS again,
                   h.cancel_requested_at IS NOT NULL AS cancelled
            FROM (
                SELECT * FROM jsonb_to_recordset(p_jobs) AS r (job_id uuid, claim_token uuid, replay boolean)
                ORDER BY r.job_id
            ) g
            CROSS JOIN LATERAL (
                SELECT j.job_id, j.cancel_requested_at FROM job_history j
                WHERE j.job_id = g.job_id AND j.claim_token = g.claim_token AND j.state = 'RUNNING'
                FOR UPDATE
            ) h
        ), released AS (
            UPDATE job_history h SET
                state = CASE WHEN g.again THEN 'PENDING' WHEN g.cancelled THEN 'CANCELLED' ELSE 'FAILED' END,
                claim_token = CASE WHEN g.again THEN NULL ELSE h.claim_token END,
                executor_id = CASE WHEN g.again THEN NULL ELSE h.executor_id END,
                started_at = CASE WHEN g.again THEN NULL ELSE h.started_at END,
                deadline_at = CASE WHEN g.again THEN NULL ELSE h.deadline_at END,
                failed_reason = CASE WHEN g.again THEN h.failed_reason ELSE p_reason END,
                completed_at = CASE WHEN g.again THEN NULL ELSE v_now END,
                updated_at = v_now
            FROM given g WHERE h.job_id = g.job_id
            RETURNING h.*
        ), told AS (
            INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
            SELECT r.tenant_id, 'jobs.job.' || lower(r.state), r.job_id,
                   CASE r.state WHEN 'FAILED' THEN 'WARNING' ELSE 'INFO' END, event_payload(r), v_now
            FROM released r WHERE r.state <> 'PENDING'
        ), woken AS (
            SELECT wake_executors(q.queue) FROM (SELECT DISTINCT r.queue FROM released r WHERE r.state = 'PENDING') q
        )
        SELECT r.job_id, r.state FROM released r LEFT JOIN (SELECT count(*) FROM woken) w ON true;
END
$$;
