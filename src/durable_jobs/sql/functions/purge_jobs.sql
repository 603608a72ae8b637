-- Purges a page of one tenant's history: whole chains that ended before p_before, with their published
-- events, in this transaction and counted in the run. A chain of which anything is locked, or has changed
-- since the look, is left alone. Returns what went and where the next page begins.
-- Error DJ004: a row that is not due would have gone; nothing went.
CREATE OR REPLACE FUNCTION purge_jobs(
    p_run uuid, p_tenant text, p_before timestamptz, p_after_at timestamptz, p_after_id uuid, p_limit integer
) RETURNS jsonb
LANGUAGE plpgsql
-- Everything is looked up by index: statistics lag behind when millions of rows come or go.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_page record;
    v_rows tid[];
    v_gone record;
    v_events bigint := 0;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT count(*) AS examined, max(d.completed_at) AS at,
           (array_agg(d.job_id ORDER BY d.completed_at DESC, d.job_id DESC))[1] AS id,
           array_agg(d.job_id) FILTER (WHERE d.due AND d.alone) AS alone,
           array(SELECT DISTINCT unnest(array_agg(d.root_job_id) FILTER (WHERE d.due AND NOT d.alone))) AS roots
    INTO v_page FROM due_jobs(p_tenant, p_before, p_after_at, p_after_id, p_limit) d;
    v_rows := lock_due_jobs(v_page.alone, v_page.roots, p_before);

    WITH gone AS (
        DELETE FROM job_history h USING unnest(v_rows) AS locked (row) WHERE h.ctid = locked.row
        RETURNING h.job_id, h.root_job_id, h.job_type, h.state, h.completed_at, job_bytes(h) AS bytes
    ), groups AS (
        SELECT g.job_type, g.state, count(*) AS jobs, sum(g.bytes) AS bytes FROM gone g GROUP BY 1, 2
    )
    SELECT array_agg(g.job_id) AS ids, count(*) AS jobs,
           count(*) FILTER (WHERE g.job_id = g.root_job_id) AS chains,
           coalesce(sum(g.bytes), 0) AS bytes, max(g.completed_at) AS youngest,
           count(*) FILTER (WHERE (g.completed_at < p_before) IS NOT TRUE) AS early,
           (SELECT coalesce(jsonb_agg(s), '[]') FROM groups s) AS groups
    INTO v_gone FROM gone g;
    IF v_gone.early > 0 OR v_gone.jobs <> cardinality(v_rows) THEN
        RAISE EXCEPTION USING ERRCODE = 'DJ004', MESSAGE = format(
            '%s of %s jobs of tenant %s were not due at %s: nothing was purged',
            v_gone.early, v_gone.jobs, quote_literal(p_tenant), p_before);
    END IF;

    DELETE FROM job_events e WHERE e.job_id = ANY (v_gone.ids) AND e.published_at IS NOT NULL;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    UPDATE purge_runs r SET jobs = r.jobs + v_gone.jobs, events = r.events + v_events, bytes = r.bytes + v_gone.bytes
    WHERE r.run_id = p_run;
    RETURN jsonb_build_object(
        'examined', v_page.examined, 'at', v_page.at, 'id', v_page.id, 'gone', v_gone.jobs, 'bytes', v_gone.bytes,
        'events', v_events, 'youngest', v_gone.youngest, 'groups', v_gone.groups,
        'skipped', coalesce(cardinality(v_page.alone), 0) + cardinality(v_page.roots) - v_gone.chains);
END
$$;
