-- Takes one job by its id, for a run of its own; nothing when it does not wait, is held back, or the
-- executor is not known.
CREATE OR REPLACE FUNCTION claim_job(p_executor uuid, p_tenant text, p_job uuid, p_now timestamptz)
RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_queue text;
    v_shard smallint;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT j.queue, j.pending_shard INTO v_queue, v_shard FROM job_history j
    WHERE j.job_id = p_job AND j.state = 'PENDING' AND j.run_at <= v_now
      AND NOT EXISTS (SELECT FROM paused p WHERE (p.kind, p.name) IN (('queue', j.queue), ('type', j.job_type)))
      AND EXISTS (SELECT FROM job_executors e WHERE e.executor_id = p_executor)
    FOR UPDATE OF j SKIP LOCKED;
    IF FOUND THEN
        PERFORM release_pending(v_queue, ARRAY[v_shard]);
        RETURN QUERY
            UPDATE job_history j SET
                state = 'RUNNING', claim_token = gen_random_uuid(), claim_count = j.claim_count + 1,
                executor_id = p_executor, started_at = v_now, deadline_at = v_now + j.timeout,
                pending_shard = NULL, updated_at = v_now
            WHERE j.job_id = p_job
            RETURNING j.*;
    END IF;
END
$$;
