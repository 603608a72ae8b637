-- Purges a page of published events that no job holds any more; without a tenant those of the system.
-- Returns what went and where the next page begins.
CREATE OR REPLACE FUNCTION purge_events(
    p_run uuid, p_tenant text, p_before timestamptz, p_now timestamptz, p_after_at timestamptz,
    p_after_id uuid, p_limit integer
) RETURNS jsonb
LANGUAGE plpgsql
-- Everything is looked up by index: statistics lag behind when millions of rows come or go.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_page record;
    v_gone bigint;
BEGIN
    PERFORM set_tenants(array_remove(ARRAY[p_tenant], NULL));
    SELECT count(*) AS examined, max(d.occurred_at) AS at,
           (array_agg(d.event_id ORDER BY d.occurred_at DESC, d.event_id DESC))[1] AS id,
           array_agg(d.event_id) FILTER (WHERE d.due) AS ids
    INTO v_page FROM due_events(p_tenant, p_before, p_now, p_after_at, p_after_id, p_limit) d;
    WITH locked AS MATERIALIZED (
        SELECT e.event_id FROM unnest(v_page.ids) AS wanted (event_id)
        JOIN job_events e ON e.event_id = wanted.event_id
        WHERE e.published_at IS NOT NULL
        FOR UPDATE OF e SKIP LOCKED
    )
    DELETE FROM job_events e USING locked l WHERE e.event_id = l.event_id;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    UPDATE purge_runs r SET events = r.events + v_gone WHERE r.run_id = p_run;
    RETURN jsonb_build_object('examined', v_page.examined, 'at', v_page.at, 'id', v_page.id, 'gone', v_gone);
END
$$;
