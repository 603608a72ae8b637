-- Writes the progress and the task runs that executions reported, under their fences.
CREATE OR REPLACE FUNCTION note_progress(p_tenants text[], p_notes jsonb, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(p_tenants);
    WITH running AS MATERIALIZED (
        -- Locked in one order, as finish_jobs does: the two run side by side. Weaker than theirs, so that
        -- no effect in an open transaction of the job holds it up.
        SELECT h.job_id, n.progress, n.task_run_id
        FROM (
            SELECT * FROM jsonb_to_recordset(p_notes) AS r (
                job_id uuid, claim_token uuid, progress jsonb, task_run_id uuid)
            ORDER BY r.job_id
        ) n
        CROSS JOIN LATERAL (
            SELECT j.job_id FROM job_history j
            WHERE j.job_id = n.job_id AND j.claim_token = n.claim_token AND j.state = 'RUNNING'
            FOR NO KEY UPDATE
        ) h
    )
    UPDATE job_history h SET
        progress = coalesce(r.progress, h.progress),
        task_run_id = coalesce(r.task_run_id, h.task_run_id),
        updated_at = coalesce(p_now, now())
    FROM running r WHERE h.job_id = r.job_id;
END
$$;
