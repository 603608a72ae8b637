-- The dead letters of a tenant by type, and how executions ended since p_since.
CREATE OR REPLACE FUNCTION count_letters(p_tenant text, p_since interval, p_now timestamptz) RETURNS TABLE (
    job_type text, letters bigint, at_limit bigint, oldest_at timestamptz, failed bigint, ended bigint
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        WITH letters AS (
            SELECT j.job_type, count(*) AS n, count(*) FILTER (WHERE j.retry_count >= j.max_retries) AS at_limit,
                   min(j.completed_at) AS oldest_at
            FROM job_history j
            WHERE j.tenant_id = p_tenant AND j.state = 'FAILED' AND j.retryable
              AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)
            GROUP BY j.job_type
        ), lately AS (
            SELECT j.job_type, count(*) FILTER (WHERE j.state <> 'SUCCEEDED') AS failed, count(*) AS ended
            FROM job_history j
            WHERE j.tenant_id = p_tenant AND j.completed_at > v_now - p_since AND j.state <> 'CANCELLED'
            GROUP BY j.job_type
        )
        SELECT coalesce(l.job_type, h.job_type), coalesce(l.n, 0), coalesce(l.at_limit, 0), l.oldest_at,
               coalesce(h.failed, 0), coalesce(h.ended, 0)
        FROM letters l FULL JOIN lately h USING (job_type) ORDER BY 1;
END
$$;
