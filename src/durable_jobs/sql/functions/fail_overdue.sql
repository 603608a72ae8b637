-- Ends jobs that are past their deadline, or past a cancel request, by more than p_margin, whoever
-- runs them: code that does not stop loses its fence. Of one tenant, or of all.
CREATE OR REPLACE FUNCTION fail_overdue(p_margin interval, p_tenant text, p_limit integer, p_now timestamptz)
RETURNS SETOF uuid
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
BEGIN
    PERFORM set_tenants(CASE WHEN p_tenant IS NULL THEN array(SELECT list_tenants('running')) ELSE ARRAY[p_tenant] END);
    RETURN QUERY
        WITH overdue AS MATERIALIZED (
            SELECT j.job_id FROM job_history j
            WHERE j.state = 'RUNNING' AND least(j.deadline_at, j.cancel_requested_at) < v_now - p_margin
            LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), failed AS (
            UPDATE job_history h SET
                state = CASE WHEN h.cancel_requested_at IS NULL THEN 'FAILED' ELSE 'CANCELLED' END,
                failed_reason = CASE WHEN h.cancel_requested_at IS NULL
                    THEN 'timed out after ' || trim_scale(extract(epoch FROM h.timeout)) || ' s' END,
                completed_at = v_now, updated_at = v_now
            FROM overdue o WHERE h.job_id = o.job_id
            RETURNING h.*
        ), told AS (
            INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
            SELECT f.tenant_id, 'jobs.job.' || lower(f.state), f.job_id, 'WARNING', event_payload(f), v_now
            FROM failed f
        )
        SELECT f.job_id FROM failed f;
END
$$;
