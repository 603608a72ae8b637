-- What one executor holds: its own audit, and where cancel requests and passed deadlines show.
CREATE OR REPLACE FUNCTION held_jobs(p_executor uuid)
RETURNS TABLE (job_id uuid, claim_token uuid, tenant_id text, cancel_requested boolean, overdue boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_tenants(array(SELECT list_tenants('running')));
    RETURN QUERY
        SELECT j.job_id, j.claim_token, j.tenant_id, j.cancel_requested_at IS NOT NULL, j.deadline_at < now()
        FROM job_history j WHERE j.executor_id = p_executor AND j.state = 'RUNNING';
END
$$;
