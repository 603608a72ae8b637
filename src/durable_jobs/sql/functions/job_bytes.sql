-- About how much room a job takes: its big columns as they are stored, and the rest of the row.
CREATE OR REPLACE FUNCTION job_bytes(p_job job_history) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT 350::bigint + coalesce(pg_column_size(p_job.payload), 0) + coalesce(pg_column_size(p_job.result), 0)
         + coalesce(pg_column_size(p_job.failed_reason), 0) + coalesce(pg_column_size(p_job.progress), 0);
$$;
