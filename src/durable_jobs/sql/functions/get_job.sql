-- One job of one tenant, or nothing.
CREATE OR REPLACE FUNCTION get_job(p_tenant text, p_job uuid) RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY SELECT j.* FROM job_history j WHERE j.job_id = p_job;
END
$$;
