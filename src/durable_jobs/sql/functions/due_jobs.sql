-- A page of one tenant's jobs that ended before p_before, oldest first, behind the given one. `due` says
-- whether the whole chain ended before, `alone` whether the job is all of its chain. What is listed and what
-- is purged both come from here. The caller names the tenant first.
CREATE OR REPLACE FUNCTION due_jobs(
    p_tenant text, p_before timestamptz, p_after_at timestamptz, p_after_id uuid, p_limit integer
) RETURNS TABLE (job_id uuid, root_job_id uuid, completed_at timestamptz, due boolean, alone boolean)
LANGUAGE sql STABLE
AS $$
    WITH page AS MATERIALIZED (
        SELECT j.job_id, j.root_job_id, j.completed_at,
               -- Asked of the children too, and not of the job alone: a chain goes whole or not at all.
               j.job_id = j.root_job_id AND j.retry_child_id IS NULL AND (
                   SELECT count(*) FROM job_history m
                   WHERE m.root_job_id = j.job_id AND m.parent_job_id IS NOT NULL) = 0 AS alone
        FROM job_history j
        WHERE j.tenant_id = p_tenant AND j.completed_at < p_before
          AND (j.completed_at, j.job_id) > (
              coalesce(p_after_at, '-infinity'), coalesce(p_after_id, '00000000-0000-0000-0000-000000000000'))
        ORDER BY j.completed_at, j.job_id LIMIT p_limit
    ), chains AS MATERIALIZED (
        -- Each chain once, however many of its jobs are on the page. Aggregates, because they are always
        -- looked up in the index, chain by chain.
        SELECT r.root_job_id, coalesce(root.last_at < p_before, true)
                              AND coalesce(retries.last_at < p_before, true) AS due
        FROM (SELECT DISTINCT p.root_job_id FROM page p WHERE NOT p.alone) r
        CROSS JOIN LATERAL (
            SELECT max(coalesce(m.completed_at, 'infinity')) AS last_at FROM job_history m
            WHERE m.job_id = r.root_job_id
        ) root
        CROSS JOIN LATERAL (
            SELECT max(coalesce(m.completed_at, 'infinity')) AS last_at FROM job_history m
            WHERE m.root_job_id = r.root_job_id AND m.parent_job_id IS NOT NULL
        ) retries
    )
    SELECT p.job_id, p.root_job_id, p.completed_at, true, true FROM page p WHERE p.alone
    UNION ALL
    SELECT u.job_id, u.root_job_id, u.completed_at, u.chain_due, false FROM (
        SELECT b.*, bool_and(b.due) OVER (PARTITION BY b.root_job_id) AS chain_due FROM (
            SELECT p.job_id, p.root_job_id, p.completed_at, NULL::boolean AS due FROM page p WHERE NOT p.alone
            UNION ALL
            SELECT NULL, c.root_job_id, NULL, c.due FROM chains c
        ) b
    ) u
    WHERE u.job_id IS NOT NULL;
$$;
