-- Looks at a page of one tenant's old effects or published events and says how many a purge with the same
-- times would take.
CREATE OR REPLACE FUNCTION list_due(
    p_what text, p_tenant text, p_before timestamptz, p_other timestamptz, p_after_at timestamptz, p_after_id uuid,
    p_limit integer
) RETURNS jsonb
LANGUAGE plpgsql
-- Everything is looked up by index: statistics lag behind when millions of rows come or go.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_page record;
BEGIN
    PERFORM set_tenants(array_remove(ARRAY[p_tenant], NULL));
    IF p_what = 'effects' THEN
        SELECT count(*) AS examined, max(d.created_at) AS at,
               (array_agg(d.id ORDER BY d.created_at DESC, d.id DESC))[1] AS id,
               count(*) FILTER (WHERE d.due) AS due
        INTO v_page FROM due_effects(p_tenant, p_before, p_other, p_after_at, p_after_id, p_limit) d;
    ELSE
        SELECT count(*) AS examined, max(d.occurred_at) AS at,
               (array_agg(d.event_id ORDER BY d.occurred_at DESC, d.event_id DESC))[1] AS id,
               count(*) FILTER (WHERE d.due) AS due
        INTO v_page FROM due_events(p_tenant, p_before, p_other, p_after_at, p_after_id, p_limit) d;
    END IF;
    RETURN to_jsonb(v_page);
END
$$;
