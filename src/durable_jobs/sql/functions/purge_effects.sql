-- Purges a page of one tenant's effects: those past their own time whose chain is gone.
-- Returns what went and where the next page begins.
CREATE OR REPLACE FUNCTION purge_effects(
    p_run uuid, p_tenant text, p_before timestamptz, p_jobs_before timestamptz, p_after_at timestamptz,
    p_after_id uuid, p_limit integer
) RETURNS jsonb
LANGUAGE plpgsql
-- Everything is looked up by index: statistics lag behind when millions of rows come or go.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_page record;
    v_locked uuid[];
    v_gone bigint;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT count(*) AS examined, max(d.created_at) AS at,
           (array_agg(d.id ORDER BY d.created_at DESC, d.id DESC))[1] AS id,
           array_agg(d.id) FILTER (WHERE d.due AND d.free) AS ids
    INTO v_page FROM due_effects(p_tenant, p_before, p_jobs_before, p_after_at, p_after_id, p_limit) d;
    SELECT coalesce(array_agg(l.id), '{}') INTO v_locked FROM (
        SELECT e.id FROM unnest(v_page.ids) AS wanted (id) JOIN job_effects e ON e.id = wanted.id
        FOR UPDATE OF e SKIP LOCKED
    ) l;
    -- Asked once more of the locked: since the look one may have been confirmed, or taken over by a job that lives.
    DELETE FROM job_effects e
    WHERE e.id = ANY (v_locked) AND coalesce(e.confirmed_at, e.created_at) < p_before
      AND (SELECT count(*) FROM job_history m WHERE m.job_id = e.root_job_id) = 0
      AND (SELECT count(*) FROM job_history m
           WHERE m.root_job_id = e.root_job_id AND m.parent_job_id IS NOT NULL) = 0
      AND (SELECT count(*) FROM job_history m WHERE m.origin_job_id = e.root_job_id) = 0;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    UPDATE purge_runs r SET effects = r.effects + v_gone WHERE r.run_id = p_run;
    RETURN jsonb_build_object('examined', v_page.examined, 'at', v_page.at, 'id', v_page.id, 'gone', v_gone);
END
$$;
