-- Writes the progress and the task runs that executions reported, under their fences.
CREATE OR REPLACE FUNCTION note_progress(p_tenants text[], p_notes jsonb, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(p_tenants);
    UPDATE job_history h SET
        progress = coalesce(r.progress, h.progress),
        task_run_id = coalesce(r.task_run_id, h.task_run_id),
        updated_at = coalesce(p_now, now())
    FROM jsonb_to_recordset(p_notes) AS r (job_id uuid, claim_token uuid, progress jsonb, task_run_id uuid)
    WHERE h.job_id = r.job_id AND h.claim_token = r.claim_token AND h.state = 'RUNNING';
END
$$;
