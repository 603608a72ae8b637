-- Notes the flow run that a running job follows; an execution that lost the job says the same.
CREATE OR REPLACE FUNCTION link_flow_run(p_tenant text, p_job uuid, p_run uuid) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    UPDATE job_history j SET flow_run_id = p_run, updated_at = now()
    WHERE j.job_id = p_job AND j.state = 'RUNNING' AND j.flow_run_id IS DISTINCT FROM p_run;
END
$$;
