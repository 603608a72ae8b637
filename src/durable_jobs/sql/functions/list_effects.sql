-- Effects of one tenant, newest first, with a job only those of its chain and of what it repeats. The
-- state of an unfinished one whose execution is over is UNKNOWN.
CREATE OR REPLACE FUNCTION list_effects(p_tenant text, p_states text[], p_job uuid, p_limit integer)
RETURNS TABLE (
    id uuid, key text, effect_type text, state text, job_id uuid, root_job_id uuid,
    created_at timestamptz, confirmed_at timestamptz, result jsonb)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_root uuid;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT coalesce(j.origin_job_id, j.root_job_id) INTO v_root FROM job_history j WHERE j.job_id = p_job;
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
          AND (p_job IS NULL OR e.job_id = p_job OR e.root_job_id IN (p_job, v_root))
        ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit;
END
$$;
