-- Locks dead letters of one tenant that may be retried, oldest first; those that somebody else works on
-- are left to them.
CREATE OR REPLACE FUNCTION lock_failed(
    p_tenant text, p_filter jsonb, p_full text[], p_skip uuid[], p_limit integer
) RETURNS TABLE (job_id uuid, job_type text, queue text, payload text, payload_version integer, retry_count integer)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        SELECT j.job_id, j.job_type, j.queue, j.payload::text, j.payload_version, j.retry_count
        FROM job_history j
        WHERE j.tenant_id = p_tenant AND j.state = 'FAILED' AND j.retryable
          AND j.retry_count < j.max_retries AND j.queue <> ALL (p_full) AND j.job_id <> ALL (p_skip)
          AND fits_filter(j, p_filter)
          AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)
        ORDER BY j.completed_at, j.job_id LIMIT p_limit FOR UPDATE SKIP LOCKED;
END
$$;
