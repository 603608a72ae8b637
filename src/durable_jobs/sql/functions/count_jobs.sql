-- Aggregates over all tenants for people and metrics: counts and ages, nothing of any job.
CREATE OR REPLACE FUNCTION count_jobs() RETURNS TABLE (
    queue text, job_type text, state text, jobs bigint, oldest_run_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public
AS $$
    SELECT j.queue, j.job_type, j.state, count(*), min(j.run_at)
    FROM public.job_history j
    WHERE j.state IN ('PENDING', 'RUNNING') OR (j.state = 'FAILED' AND j.retryable)
    GROUP BY j.queue, j.job_type, j.state;
$$;
