-- Aggregates over all tenants for people and metrics: counts and ages, nothing of any job. A failed job counts
-- while it is a dead letter: what was resubmitted is none any more.
-- Each state by its own partial index: as one condition they would be looked for in the whole history.
CREATE OR REPLACE FUNCTION count_jobs() RETURNS TABLE (
    queue text, job_type text, state text, jobs bigint, oldest_run_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public SET enable_seqscan = off SET jit = off
AS $$
    SELECT j.queue, j.job_type, 'PENDING', count(*), min(j.run_at) FROM public.job_history j
    WHERE j.state = 'PENDING' GROUP BY j.queue, j.job_type
    UNION ALL
    SELECT j.queue, j.job_type, 'RUNNING', count(*), min(j.run_at) FROM public.job_history j
    WHERE j.state = 'RUNNING' GROUP BY j.queue, j.job_type
    UNION ALL
    SELECT j.queue, j.job_type, 'FAILED', count(*), min(j.run_at) FROM public.job_history j
    WHERE j.state = 'FAILED' AND j.retryable
      AND NOT EXISTS (SELECT FROM public.job_history r WHERE r.replay_of = j.job_id)
    GROUP BY j.queue, j.job_type;
$$;
