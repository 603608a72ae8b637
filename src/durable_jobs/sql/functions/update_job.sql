-- Progress and cancel requests of a live job; its state never changes here.
CREATE OR REPLACE FUNCTION update_job(
    p_tenant text, p_job uuid, p_progress jsonb, p_cancel boolean, p_now timestamptz
) RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    UPDATE job_history j SET
        progress = coalesce(p_progress, j.progress),
        cancel_requested_at = CASE WHEN p_cancel THEN coalesce(j.cancel_requested_at, v_now)
                              ELSE j.cancel_requested_at END,
        updated_at = v_now
    WHERE j.job_id = p_job AND j.state IN ('PENDING', 'RUNNING');
    RETURN QUERY SELECT j.* FROM job_history j WHERE j.job_id = p_job;
END
$$;
