-- How many jobs of each isolated queue are on their way: running, or waiting for their flow run.
CREATE OR REPLACE FUNCTION dispatched_jobs(p_queues text[]) RETURNS TABLE (queue text, jobs bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_tenants text[];
    v_queue text;
BEGIN
    v_tenants := array(SELECT list_tenants('running'));
    FOREACH v_queue IN ARRAY p_queues LOOP
        v_tenants := v_tenants || array(SELECT list_tenants('pending', v_queue));
    END LOOP;
    PERFORM set_tenants(v_tenants);
    RETURN QUERY
        SELECT j.queue, count(*) FROM job_history j
        WHERE j.queue = ANY (p_queues)
          AND (j.state = 'RUNNING' OR (j.state = 'PENDING' AND j.dispatch_count > 0))
        GROUP BY j.queue;
END
$$;
