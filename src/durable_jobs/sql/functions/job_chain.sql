-- The whole story of a job: its chain of retries, and the chains that were resubmitted from or as it.
CREATE OR REPLACE FUNCTION job_chain(p_tenant text, p_job uuid) RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        WITH RECURSIVE story AS (
            SELECT j.job_id, j.root_job_id, j.parent_job_id, j.replay_of FROM job_history j WHERE j.job_id = p_job
            UNION
            SELECT j.job_id, j.root_job_id, j.parent_job_id, j.replay_of FROM story s JOIN LATERAL (
                SELECT r.* FROM job_history r WHERE r.job_id = s.root_job_id
                UNION ALL
                SELECT r.* FROM job_history r
                WHERE r.root_job_id = s.root_job_id AND r.parent_job_id IS NOT NULL
                UNION ALL
                SELECT r.* FROM job_history r WHERE r.job_id = s.replay_of
                UNION ALL
                SELECT r.* FROM job_history r WHERE r.replay_of = s.job_id
            ) j ON true
        )
        SELECT j.* FROM job_history j WHERE j.job_id IN (SELECT s.job_id FROM story s)
        ORDER BY j.created_at, j.retry_count, j.job_id;
END
$$;
