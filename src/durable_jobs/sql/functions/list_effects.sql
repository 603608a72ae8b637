-- Effects of one tenant, newest first; of an unfinished one whose execution is over the state is UNKNOWN.
CREATE OR REPLACE FUNCTION list_effects(p_tenant text, p_states text[], p_job uuid, p_limit integer)
RETURNS TABLE (
    id uuid, key text, effect_type text, state text, job_id uuid, root_job_id uuid,
    created_at timestamptz, confirmed_at timestamptz, result jsonb)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        SELECT e.id, e.key, e.effect_type, s.state, e.job_id, e.root_job_id, e.created_at, e.confirmed_at,
               e.result
        FROM job_effects e
        CROSS JOIN LATERAL (
            SELECT CASE WHEN e.state = 'RESERVED' AND NOT EXISTS (
                SELECT FROM job_history j
                WHERE j.job_id = e.job_id AND j.claim_token = e.claim_token AND j.state = 'RUNNING'
            ) THEN 'UNKNOWN' ELSE e.state END AS state
        ) s
        WHERE e.tenant_id = p_tenant
          AND (p_states IS NULL OR s.state = ANY (p_states))
          AND (p_job IS NULL OR e.job_id = p_job OR e.root_job_id = p_job)
        ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit;
END
$$;
