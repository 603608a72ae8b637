-- Due jobs that run in a flow run of their own: those of isolated queues, and suspects of any queue.
-- Never started ones, and those whose flow run should have begun by now.
CREATE OR REPLACE FUNCTION waiting_alone(p_queues text[], p_stale interval, p_limit integer, p_now timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid, queue text, dispatch_count integer, flow_run_id uuid)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_queue text;
BEGIN
    FOREACH v_queue IN ARRAY p_queues LOOP
        PERFORM set_tenants(array(SELECT list_tenants('pending', v_queue, '', p_limit)));
        RETURN QUERY
            SELECT j.tenant_id, j.job_id, j.queue, j.dispatch_count, j.flow_run_id FROM job_history j
            WHERE j.state = 'PENDING' AND j.queue = v_queue AND j.run_at <= v_now
              AND (j.dispatch_count = 0 OR j.updated_at < v_now - p_stale)
              AND NOT EXISTS (SELECT FROM paused p WHERE (p.kind = 'queue' AND p.name = j.queue)
                                                      OR (p.kind = 'type' AND p.name = j.job_type))
            ORDER BY j.claim_order, j.run_at, j.job_id LIMIT p_limit;
    END LOOP;
    PERFORM set_tenants(array(SELECT list_tenants('suspect')));
    RETURN QUERY
        SELECT j.tenant_id, j.job_id, j.queue, j.dispatch_count, j.flow_run_id FROM job_history j
        WHERE j.state = 'PENDING' AND j.crash_count > 0 AND j.queue <> ALL (p_queues) AND j.run_at <= v_now
          AND (j.dispatch_count = 0 OR j.updated_at < v_now - p_stale)
          AND NOT EXISTS (SELECT FROM paused p WHERE (p.kind = 'queue' AND p.name = j.queue)
                                                  OR (p.kind = 'type' AND p.name = j.job_type))
        ORDER BY j.run_at, j.job_id LIMIT p_limit;
END
$$;
