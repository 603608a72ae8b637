-- Locks running jobs of one tenant whose executor is among the silent ones or unknown, except some.
CREATE OR REPLACE FUNCTION lock_orphans(
    p_tenant text, p_silent uuid[], p_except uuid[], p_limit integer
)
RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        SELECT j.* FROM job_history j
        WHERE j.state = 'RUNNING' AND j.tenant_id = p_tenant
          AND j.job_id <> ALL (p_except)
          AND (j.executor_id = ANY (p_silent)
               OR NOT EXISTS (SELECT FROM job_executors e WHERE e.executor_id = j.executor_id))
        LIMIT p_limit FOR UPDATE SKIP LOCKED;
END
$$;
