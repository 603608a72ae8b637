-- Cancels what waits or has failed at once; asks a running execution to stop. Returns the job, or
-- nothing when there is none. A terminal job is returned unchanged.
CREATE OR REPLACE FUNCTION cancel_job(p_tenant text, p_job uuid, p_by text, p_now timestamptz)
RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_job job_history;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT * INTO v_job FROM job_history j WHERE j.job_id = p_job FOR UPDATE;
    IF v_job.state = 'PENDING' OR (v_job.state = 'FAILED' AND v_job.retryable) THEN
        PERFORM release_pending(v_job.queue, ARRAY[v_job.pending_shard]);
        UPDATE job_history j SET state = 'CANCELLED', pending_shard = NULL, completed_at = v_now,
            cancel_requested_at = v_now, updated_at = v_now
        WHERE j.job_id = p_job RETURNING * INTO v_job;
        INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
        VALUES (p_tenant, 'jobs.job.cancelled', p_job, 'INFO',
                event_payload(v_job) || jsonb_build_object('by', p_by), v_now);
    ELSIF v_job.state = 'RUNNING' AND v_job.cancel_requested_at IS NULL THEN
        UPDATE job_history j SET cancel_requested_at = v_now, updated_at = v_now
        WHERE j.job_id = p_job RETURNING * INTO v_job;
        PERFORM pg_notify('durable_jobs_cancel', v_job.executor_id::text);
    END IF;
    IF v_job.job_id IS NOT NULL THEN
        RETURN NEXT v_job;
    END IF;
END
$$;
