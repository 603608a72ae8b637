-- Progress, and the request that a running job stop; its state never changes here.
-- What waits cannot be asked to stop (cancel_job ends it), and what has ended stays as it is.
CREATE OR REPLACE FUNCTION update_job(
    p_tenant text, p_job uuid, p_progress jsonb, p_cancel boolean, p_now timestamptz
) RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_job job_history;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT * INTO v_job FROM job_history j WHERE j.job_id = p_job FOR UPDATE;
    IF v_job.state = 'RUNNING' OR (v_job.state = 'PENDING' AND NOT p_cancel) THEN
        UPDATE job_history j SET
            progress = coalesce(p_progress, j.progress),
            cancel_requested_at = CASE WHEN p_cancel THEN coalesce(j.cancel_requested_at, v_now)
                                  ELSE j.cancel_requested_at END,
            updated_at = v_now
        WHERE j.job_id = p_job RETURNING * INTO v_job;
    END IF;
    IF v_job.job_id IS NOT NULL THEN
        RETURN NEXT v_job;
    END IF;
END
$$;
