-- Notes the flow run that is to execute a waiting job; false when somebody else did or it waits no more.
CREATE OR REPLACE FUNCTION mark_dispatched(
    p_tenant text, p_job uuid, p_count integer, p_flow_run uuid, p_now timestamptz
) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    UPDATE job_history j SET dispatch_count = p_count + 1, flow_run_id = p_flow_run, updated_at = coalesce(p_now, now())
    WHERE j.job_id = p_job AND j.state = 'PENDING' AND j.dispatch_count = p_count;
    RETURN FOUND;
END
$$;
