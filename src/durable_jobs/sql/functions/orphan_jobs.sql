-- Settles jobs whose executor died, as decided for each: waiting again under the same id, or failed
-- as stalled. Each execution that died is charged, unless it is decided otherwise; at the limit the job is given up for good.
CREATE OR REPLACE FUNCTION orphan_jobs(
    p_tenant text, p_decisions jsonb, p_max_crashes integer, p_now timestamptz
) RETURNS TABLE (job_id uuid, state text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        WITH decided AS (
            SELECT d.*, h.crash_count + d.charge AS crashes,
                   d.replay AND (d.charge = 0 OR h.crash_count + 1 < p_max_crashes) AND h.cancel_requested_at IS NULL AS again,
                   h.cancel_requested_at IS NOT NULL AS cancelled
            FROM (
                SELECT r.*, CASE WHEN r.charged IS FALSE THEN 0 ELSE 1 END AS charge
                FROM jsonb_to_recordset(p_decisions) AS r (
                    job_id uuid, claim_token uuid, replay boolean, reason text, retryable boolean, charged boolean)
            ) d
            JOIN job_history h ON h.job_id = d.job_id AND h.claim_token = d.claim_token AND h.state = 'RUNNING'
        ), settled AS (
            UPDATE job_history h SET
                state = CASE WHEN d.again THEN 'PENDING' WHEN d.cancelled THEN 'CANCELLED' ELSE 'FAILED' END,
                crash_count = d.crashes,
                claim_token = CASE WHEN d.again THEN NULL ELSE h.claim_token END,
                executor_id = CASE WHEN d.again THEN NULL ELSE h.executor_id END,
                started_at = CASE WHEN d.again THEN NULL ELSE h.started_at END,
                deadline_at = CASE WHEN d.again THEN NULL ELSE h.deadline_at END,
                failed_reason = CASE WHEN d.again THEN h.failed_reason ELSE coalesce(d.reason, 'stalled') END,
                retryable = CASE WHEN d.again THEN h.retryable
                            ELSE h.retryable AND d.retryable AND d.crashes < p_max_crashes END,
                completed_at = CASE WHEN d.again THEN NULL ELSE v_now END,
                updated_at = v_now
            FROM decided d WHERE h.job_id = d.job_id
            RETURNING h.*
        ), told AS (
            INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
            SELECT s.tenant_id, 'jobs.job.stalled', s.job_id,
                   CASE WHEN s.crash_count >= p_max_crashes THEN 'CRITICAL' ELSE 'WARNING' END,
                   event_payload(s) || jsonb_build_object('crashCount', s.crash_count), v_now
            FROM settled s
        ), woken AS (
            SELECT wake_executors(q.queue) FROM (SELECT DISTINCT s.queue FROM settled s WHERE s.state = 'PENDING') q
        )
        SELECT s.job_id, s.state FROM settled s LEFT JOIN (SELECT count(*) FROM woken) w ON true;
END
$$;
