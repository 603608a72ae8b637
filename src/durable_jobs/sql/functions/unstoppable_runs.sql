-- Flow runs of isolated jobs that were asked to stop longer than p_margin ago and still run.
CREATE OR REPLACE FUNCTION unstoppable_runs(p_margin interval) RETURNS SETOF uuid
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(array(SELECT list_tenants('running')));
    RETURN QUERY
        SELECT DISTINCT e.flow_run_id FROM job_history j JOIN job_executors e USING (executor_id)
        WHERE j.state = 'RUNNING' AND NOT e.in_crew AND cardinality(e.queues) = 0 AND e.flow_run_id IS NOT NULL
          AND least(j.deadline_at, j.cancel_requested_at) < now() - p_margin;
END
$$;
