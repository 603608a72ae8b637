-- Gives up dead letters that have had all their retries; returns how many of each type.
CREATE OR REPLACE FUNCTION abandon_failed(
    p_tenant text, p_filter jsonb, p_limit integer, p_by text, p_each integer, p_now timestamptz
) RETURNS TABLE (job_type text, jobs bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_ids uuid[];
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    v_ids := array(
        SELECT j.job_id FROM job_history j
        WHERE j.tenant_id = p_tenant AND j.state = 'FAILED' AND j.retryable AND j.retry_count >= j.max_retries
          AND fits_filter(j, p_filter)
          AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)
        ORDER BY j.completed_at, j.job_id LIMIT p_limit FOR UPDATE SKIP LOCKED);
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    UPDATE job_history j SET state = 'ABANDONED', updated_at = v_now WHERE j.job_id = ANY (v_ids);
    PERFORM tell_jobs(p_tenant, 'jobs.job.abandoned', 'CRITICAL', v_ids, '{}', p_by, p_each, v_now);
    RETURN QUERY
        SELECT j.job_type, count(*) FROM job_history j WHERE j.job_id = ANY (v_ids) GROUP BY j.job_type;
END
$$;
