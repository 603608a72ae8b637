-- The dead letters of a tenant, oldest first: failed, retryable, and not resubmitted since.
CREATE OR REPLACE FUNCTION find_failed(p_tenant text, p_filter jsonb, p_limit integer)
RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        SELECT j.* FROM job_history j
        WHERE j.tenant_id = p_tenant AND j.state = 'FAILED' AND j.retryable AND fits_filter(j, p_filter)
          AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)
        ORDER BY j.completed_at, j.job_id LIMIT p_limit;
END
$$;
