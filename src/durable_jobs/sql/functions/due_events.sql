-- A page of published events from before p_before, oldest first, behind the given one; without a tenant
-- those of the system. `due` says whether it was published before p_now and no job holds it: a job's events
-- go with the job. The caller names the tenant first.
CREATE OR REPLACE FUNCTION due_events(
    p_tenant text, p_before timestamptz, p_now timestamptz, p_after_at timestamptz, p_after_id uuid, p_limit integer
) RETURNS TABLE (event_id uuid, occurred_at timestamptz, due boolean)
LANGUAGE sql STABLE
AS $$
    WITH page AS MATERIALIZED (
        SELECT e.event_id, e.occurred_at, e.published_at, e.job_id FROM job_events e
        WHERE coalesce(e.tenant_id, '') = coalesce(p_tenant, '') AND e.published_at IS NOT NULL
          AND e.occurred_at < p_before
          AND (e.occurred_at, e.event_id) > (
              coalesce(p_after_at, '-infinity'), coalesce(p_after_id, '00000000-0000-0000-0000-000000000000'))
        ORDER BY e.occurred_at, e.event_id LIMIT p_limit
    )
    SELECT p.event_id, p.occurred_at, p.published_at < p_now AND holder.jobs = 0
    FROM page p
    CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM job_history j WHERE j.job_id = p.job_id) holder;
$$;
