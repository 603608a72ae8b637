-- A page of one tenant's effects made before p_before, oldest first, behind the given one; `due` says
-- whether it was confirmed before as well and its chain, with what was submitted anew
-- from it, is gone or ended before p_jobs_before, `free` whether it is gone. The caller names the tenant first.
CREATE OR REPLACE FUNCTION due_effects(
    p_tenant text, p_before timestamptz, p_jobs_before timestamptz, p_after_at timestamptz, p_after_id uuid, p_limit integer
) RETURNS TABLE (id uuid, created_at timestamptz, due boolean, free boolean)
LANGUAGE sql STABLE
AS $$
    WITH page AS MATERIALIZED (
        SELECT e.id, e.created_at, e.confirmed_at, e.root_job_id FROM job_effects e
        WHERE e.tenant_id = p_tenant AND e.created_at < p_before
          AND (e.created_at, e.id) > (
              coalesce(p_after_at, '-infinity'), coalesce(p_after_id, '00000000-0000-0000-0000-000000000000'))
        ORDER BY e.created_at, e.id LIMIT p_limit
    )
    SELECT p.id, p.created_at,
           coalesce(p.confirmed_at, p.created_at) < p_before AND coalesce(root.last_at < p_jobs_before, true)
           AND coalesce(retries.last_at < p_jobs_before, true) AND coalesce(again.last_at < p_jobs_before, true),
           root.last_at IS NULL AND retries.last_at IS NULL AND again.last_at IS NULL
    FROM page p
    CROSS JOIN LATERAL (
        SELECT max(coalesce(m.completed_at, 'infinity')) AS last_at FROM job_history m
        WHERE m.job_id = p.root_job_id
    ) root
    CROSS JOIN LATERAL (
        SELECT max(coalesce(m.completed_at, 'infinity')) AS last_at FROM job_history m
        WHERE m.root_job_id = p.root_job_id AND m.parent_job_id IS NOT NULL
    ) retries
    CROSS JOIN LATERAL (
        SELECT max(coalesce(m.completed_at, 'infinity')) AS last_at FROM job_history m
        WHERE m.origin_job_id = p.root_job_id
    ) again;
$$;
