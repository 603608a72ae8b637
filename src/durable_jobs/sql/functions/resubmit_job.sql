-- A new root with a fresh budget for a job that failed or was abandoned; the old row stays as it
-- is. The first root of all is kept as origin_job_id: effects that it made are not made again. While
-- an earlier resubmission still lives, that one is returned. Error DJ002: the queue is full.
CREATE OR REPLACE FUNCTION resubmit_job(
    p_tenant text, p_job uuid, p_new uuid, p_max_pending integer, p_retryable boolean, p_by text,
    p_now timestamptz
) RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_job job_history;
    v_live job_history;
    v_shards smallint[];
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT * INTO v_job FROM job_history j WHERE j.job_id = p_job FOR UPDATE;
    IF v_job.state IS NULL OR v_job.state NOT IN ('FAILED', 'ABANDONED') THEN
        RETURN QUERY SELECT j.* FROM job_history j WHERE j.job_id = p_job;
        RETURN;
    END IF;
    SELECT * INTO v_live FROM job_history j
    WHERE j.replay_of = p_job AND j.state IN ('PENDING', 'RUNNING') LIMIT 1;
    IF FOUND THEN
        RETURN NEXT v_live;
        RETURN;
    END IF;
    v_shards := reserve_pending(v_job.queue, p_max_pending, 1);
    IF v_shards IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'DJ002', MESSAGE = 'queue ' || v_job.queue || ' is full';
    END IF;
    INSERT INTO job_history (
        job_id, tenant_id, job_type, queue, priority, run_at, payload, payload_version, payload_hash,
        idempotency_key, correlation_id, submitted_by, retryable, max_retries, timeout, root_job_id,
        replay_of, origin_job_id, crash_count, pending_shard, created_at, updated_at)
    VALUES (
        p_new, p_tenant, v_job.job_type, v_job.queue, v_job.priority, v_now, v_job.payload,
        v_job.payload_version, v_job.payload_hash, v_job.idempotency_key, v_job.correlation_id,
        coalesce(p_by, v_job.submitted_by), p_retryable, v_job.max_retries, v_job.timeout, p_new,
        p_job, coalesce(v_job.origin_job_id, v_job.root_job_id), least(v_job.crash_count, 1), v_shards[1], v_now, v_now);
    INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
    VALUES (p_tenant, 'jobs.job.resubmitted', p_job, 'INFO',
            event_payload(v_job) || jsonb_build_object('newJobId', p_new, 'by', p_by), v_now);
    PERFORM wake_executors(v_job.queue);
    RETURN QUERY SELECT j.* FROM job_history j WHERE j.job_id = p_new;
END
$$;
