-- Looks at a page of one tenant's old history and says what a purge with the same time would take, by
-- type and state, and what it would keep because its chain is not due. Nothing is changed.
CREATE OR REPLACE FUNCTION list_due_jobs(
    p_tenant text, p_before timestamptz, p_after_at timestamptz, p_after_id uuid, p_limit integer
) RETURNS jsonb
LANGUAGE plpgsql
-- Everything is looked up by index: statistics lag behind when millions of rows come or go.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_page record;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    WITH page AS MATERIALIZED (
        SELECT d.*, j.job_type, j.state, job_bytes(j) AS bytes
        FROM due_jobs(p_tenant, p_before, p_after_at, p_after_id, p_limit) d
        CROSS JOIN LATERAL (SELECT h.* FROM job_history h WHERE h.job_id = d.job_id LIMIT 1) j
    ), groups AS (
        SELECT p.job_type, p.state, count(*) AS jobs, sum(p.bytes) AS bytes, min(p.completed_at) AS oldest,
               max(p.completed_at) AS youngest
        FROM page p WHERE p.due GROUP BY 1, 2
    )
    SELECT count(*) AS examined, max(p.completed_at) AS at,
           (array_agg(p.job_id ORDER BY p.completed_at DESC, p.job_id DESC))[1] AS id,
           count(*) FILTER (WHERE p.due) AS due, coalesce(sum(p.bytes) FILTER (WHERE p.due), 0) AS bytes,
           coalesce((array_agg(p.job_id) FILTER (WHERE p.due))[1:5], '{}') AS examples,
           (SELECT coalesce(jsonb_agg(g), '[]') FROM groups g) AS groups
    INTO v_page FROM page p;
    RETURN to_jsonb(v_page);
END
$$;
