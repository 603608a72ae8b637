-- Whether a job is one of those that a person asked for; a missing part of the filter does not filter.
CREATE OR REPLACE FUNCTION fits_filter(p_job job_history, p_filter jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (p_filter -> 'job_ids' IS NULL OR p_filter -> 'job_ids' ? p_job.job_id::text)
       AND (p_filter ->> 'job_type' IS NULL OR p_job.job_type = p_filter ->> 'job_type')
       AND (p_filter ->> 'since' IS NULL OR p_job.completed_at >= (p_filter ->> 'since')::timestamptz)
       AND (p_filter ->> 'reason_like' IS NULL OR p_job.failed_reason ILIKE p_filter ->> 'reason_like');
$$;
