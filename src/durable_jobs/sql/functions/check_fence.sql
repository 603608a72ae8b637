-- Tells whether an execution may still act: 'held', or why not: 'lost' (the job was given up, or is
-- another claim's), 'cancelled' (its end was asked for), 'overdue' (past its deadline). With p_keep the
-- job cannot be given up before the surrounding transaction ends.
CREATE OR REPLACE FUNCTION check_fence(p_job uuid, p_token uuid, p_keep boolean, p_now timestamptz) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    v_job job_history;
BEGIN
    IF p_keep THEN
        -- Against FOR UPDATE, which all take who end or release a running job; progress goes on.
        PERFORM FROM job_history j WHERE j.job_id = p_job FOR KEY SHARE;
    END IF;
    SELECT * INTO v_job FROM job_history j
    WHERE j.job_id = p_job AND j.claim_token = p_token AND j.state = 'RUNNING';
    RETURN CASE
        WHEN NOT FOUND THEN 'lost'
        WHEN v_job.cancel_requested_at IS NOT NULL THEN 'cancelled'
        -- Not now(): the caller's transaction may have begun long ago.
        WHEN v_job.deadline_at < coalesce(p_now, clock_timestamp()) THEN 'overdue'
        ELSE 'held'
    END;
END
$$;
