-- Makes the one retry of a failed job, in one transaction with RETRIED; at the limit the job is
-- ABANDONED instead. Returns the job that now stands: the child, the abandoned job, or the job
-- unchanged when its state allows no retry. Repeating it returns the same child.
-- Error DJ002: the queue is full.
CREATE OR REPLACE FUNCTION retry_job(
    p_tenant text, p_job uuid, p_child uuid, p_max_pending integer, p_run_at timestamptz, p_by text,
    p_now timestamptz
) RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_job job_history;
    v_shards smallint[];
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT * INTO v_job FROM job_history j WHERE j.job_id = p_job FOR UPDATE;
    IF v_job.state = 'RETRIED' THEN
        RETURN QUERY SELECT j.* FROM job_history j WHERE j.job_id = v_job.retry_child_id;
        RETURN;
    END IF;
    IF v_job.state IS DISTINCT FROM 'FAILED' OR NOT v_job.retryable
       OR EXISTS (SELECT FROM job_history r WHERE r.replay_of = p_job) THEN
        RETURN QUERY SELECT j.* FROM job_history j WHERE j.job_id = p_job;
        RETURN;
    END IF;
    IF v_job.retry_count >= v_job.max_retries THEN
        UPDATE job_history j SET state = 'ABANDONED', updated_at = v_now
        WHERE j.job_id = p_job RETURNING * INTO v_job;
        INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
        VALUES (p_tenant, 'jobs.job.abandoned', p_job, 'CRITICAL', event_payload(v_job), v_now);
        RETURN NEXT v_job;
        RETURN;
    END IF;
    v_shards := reserve_pending(v_job.queue, p_max_pending, 1);
    IF v_shards IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'DJ002', MESSAGE = 'queue ' || v_job.queue || ' is full';
    END IF;
    INSERT INTO job_history (
        job_id, tenant_id, job_type, queue, priority, run_at, payload, payload_version, payload_hash,
        idempotency_key, correlation_id, submitted_by, retryable, retry_count, max_retries, timeout,
        parent_job_id, root_job_id, origin_job_id, crash_count, pending_shard, created_at, updated_at)
    VALUES (
        p_child, p_tenant, v_job.job_type, v_job.queue, v_job.priority, coalesce(p_run_at, v_now),
        v_job.payload, v_job.payload_version, v_job.payload_hash, v_job.idempotency_key,
        v_job.correlation_id, v_job.submitted_by, true, v_job.retry_count + 1, v_job.max_retries,
        v_job.timeout, p_job, v_job.root_job_id, v_job.origin_job_id, v_job.crash_count, v_shards[1], v_now,
        v_now);
    UPDATE job_history j SET state = 'RETRIED', retry_child_id = p_child, updated_at = v_now
    WHERE j.job_id = p_job;
    INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
    VALUES (p_tenant, 'jobs.job.retried', p_job, 'INFO',
            event_payload(v_job) || jsonb_build_object('retryChildId', p_child, 'by', p_by), v_now);
    PERFORM wake_executors(v_job.queue);
    RETURN QUERY SELECT j.* FROM job_history j WHERE j.job_id = p_child;
END
$$;
