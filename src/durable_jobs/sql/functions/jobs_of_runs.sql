-- Jobs of flow runs about which Prefect may know better, of all tenants, newest first: dead letters, whose
-- run may have been started again, and jobs cancelled since a moment, whose run may go on.
CREATE OR REPLACE FUNCTION jobs_of_runs(p_since timestamptz, p_limit integer)
RETURNS TABLE (tenant_id text, job_id uuid, state text, flow_run_id uuid)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_tenants(array(SELECT list_tenants('any')));
    RETURN QUERY
        SELECT j.tenant_id, j.job_id, j.state, j.flow_run_id FROM job_history j
        WHERE j.job_type = 'PREFECT_FLOW_RUN' AND j.state IN ('FAILED', 'CANCELLED')
          AND CASE j.state WHEN 'FAILED' THEN j.retryable AND j.flow_run_id IS NOT NULL
                                        AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)
              ELSE j.completed_at >= p_since END
        ORDER BY j.completed_at DESC LIMIT p_limit;
    PERFORM set_tenants('{}');
END
$$;
