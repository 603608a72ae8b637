-- Forgets executors that are still silent and hold no job any more; their leases go with them.
CREATE OR REPLACE FUNCTION remove_executors(p_silent uuid[], p_stale interval)
RETURNS TABLE (executor_id uuid, flow_run_id uuid)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_tenants(array(SELECT list_tenants('running')));
    RETURN QUERY
        DELETE FROM job_executors e
        WHERE e.executor_id = ANY (p_silent) AND e.last_seen_at < now() - p_stale
          AND NOT EXISTS (SELECT FROM job_history j WHERE j.executor_id = e.executor_id AND j.state = 'RUNNING')
        RETURNING e.executor_id, e.flow_run_id;
END
$$;
