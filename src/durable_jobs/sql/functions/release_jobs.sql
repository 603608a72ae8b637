-- Gives running jobs back when their executor stops: to the queue where their type may run again,
-- else as failed. Not charged as a crash.
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
        WITH given AS (
            SELECT * FROM jsonb_to_recordset(p_jobs) AS r (job_id uuid, claim_token uuid, replay boolean)
        ), released AS (
            UPDATE job_history h SET
                state = CASE WHEN g.replay THEN 'PENDING' ELSE 'FAILED' END,
                claim_token = CASE WHEN g.replay THEN NULL ELSE h.claim_token END,
                executor_id = CASE WHEN g.replay THEN NULL ELSE h.executor_id END,
                started_at = CASE WHEN g.replay THEN NULL ELSE h.started_at END,
                deadline_at = CASE WHEN g.replay THEN NULL ELSE h.deadline_at END,
                failed_reason = CASE WHEN g.replay THEN h.failed_reason ELSE p_reason END,
                completed_at = CASE WHEN g.replay THEN NULL ELSE v_now END,
                updated_at = v_now
            FROM given g
            WHERE h.job_id = g.job_id AND h.claim_token = g.claim_token AND h.state = 'RUNNING'
            RETURNING h.*
        ), told AS (
            INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
            SELECT r.tenant_id, 'jobs.job.failed', r.job_id, 'WARNING', event_payload(r), v_now
            FROM released r WHERE r.state = 'FAILED'
        ), woken AS (
            SELECT wake_executors(q.queue) FROM (SELECT DISTINCT r.queue FROM released r WHERE r.state = 'PENDING') q
        )
        SELECT r.job_id, r.state FROM released r LEFT JOIN woken ON true;
END
$$;
