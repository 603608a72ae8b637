-- Jobs of a tenant that failed or were abandoned and that nobody has resubmitted, oldest first.
CREATE OR REPLACE FUNCTION find_ended(p_tenant text, p_states text[], p_filter jsonb, p_limit integer)
RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        SELECT j.* FROM job_history j
        WHERE j.tenant_id = p_tenant AND j.state = ANY (p_states) AND fits_filter(j, p_filter)
          AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)
        ORDER BY j.completed_at, j.job_id LIMIT p_limit;
END
$$;
