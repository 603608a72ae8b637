-- One tenant's waiting and running jobs and its dead letters, by queue, type and state.
CREATE OR REPLACE FUNCTION count_tenant_jobs(p_tenant text) RETURNS TABLE (
    queue text, job_type text, state text, jobs bigint, oldest_run_at timestamptz
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        SELECT j.queue, j.job_type, j.state, count(*), min(j.run_at)
        FROM job_history j
        WHERE j.tenant_id = p_tenant
          AND (j.state IN ('PENDING', 'RUNNING') OR (j.state = 'FAILED' AND j.retryable))
        GROUP BY j.queue, j.job_type, j.state
        ORDER BY j.queue, j.job_type, j.state;
END
$$;
