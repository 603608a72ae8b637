-- Counts a page of one tenant's ended jobs, or of its confirmed effects, by age: bucket 0 is from before
-- the first edge, bucket 1 between the first and the second, and so on. For jobs it reads an index only.
CREATE OR REPLACE FUNCTION count_history(
    p_what text, p_tenant text, p_edges timestamptz[], p_after_at timestamptz, p_after_id uuid, p_limit integer
) RETURNS jsonb
LANGUAGE plpgsql
-- Everything is looked up by index: statistics lag behind when millions of rows come or go.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_at timestamptz := coalesce(p_after_at, '-infinity');
    v_id uuid := coalesce(p_after_id, '00000000-0000-0000-0000-000000000000');
    v_ats timestamptz[];
    v_ids uuid[];
    v_buckets jsonb;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    IF p_what = 'jobs' THEN
        SELECT array_agg(p.completed_at), array_agg(p.job_id) INTO v_ats, v_ids FROM (
            SELECT j.completed_at, j.job_id FROM job_history j
            WHERE j.tenant_id = p_tenant AND j.completed_at IS NOT NULL AND (j.completed_at, j.job_id) > (v_at, v_id)
            ORDER BY j.completed_at, j.job_id LIMIT p_limit
        ) p;
    ELSE
        SELECT array_agg(p.created_at), array_agg(p.id) INTO v_ats, v_ids FROM (
            SELECT e.created_at, e.id FROM job_effects e
            WHERE e.tenant_id = p_tenant AND e.state = 'CONFIRMED' AND (e.created_at, e.id) > (v_at, v_id)
            ORDER BY e.created_at, e.id LIMIT p_limit
        ) p;
    END IF;
    SELECT coalesce(jsonb_object_agg(b.bucket, b.items), '{}') INTO v_buckets FROM (
        SELECT width_bucket(u.at, p_edges) AS bucket, count(*) AS items FROM unnest(v_ats) AS u (at) GROUP BY 1
    ) b;
    RETURN jsonb_build_object(
        'examined', coalesce(cardinality(v_ats), 0), 'at', v_ats[cardinality(v_ats)],
        'id', v_ids[cardinality(v_ids)], 'buckets', v_buckets);
END
$$;
