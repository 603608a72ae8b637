-- Figures over all tenants for monitoring, of jobs that ended lately: counts, and quantiles (0.5, 0.95,
-- 0.99) of wait and run time (s) by queue and type. The window is the longest of p_windows (longest
-- first) in which at most p_rows jobs ended, so a reading costs the same beside any history.
-- A queue or a type that is not among the given names, which the code declares, is called '(undeclared)'.
CREATE OR REPLACE FUNCTION measure_recent(
    p_queues text[], p_types text[], p_windows interval[], p_rows integer, p_now timestamptz
) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public
-- Everything is looked up by index: statistics lag behind when thousands of jobs come or go.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_tenants text[] := array(SELECT public.list_tenants('any'));
    v_window interval;
    v_ended bigint;
    v_types jsonb;
BEGIN
    FOREACH v_window IN ARRAY p_windows LOOP
        SELECT count(*) INTO v_ended FROM (
            SELECT FROM unnest(v_tenants) t CROSS JOIN LATERAL (
                SELECT FROM public.job_history j
                WHERE j.tenant_id = t AND j.completed_at > v_now - v_window LIMIT p_rows + 1
            ) one LIMIT p_rows + 1
        ) seen;
        EXIT WHEN v_ended <= p_rows;
    END LOOP;
    WITH ended AS (
        SELECT CASE WHEN j.queue = ANY (p_queues) THEN j.queue ELSE '(undeclared)' END AS queue,
               CASE WHEN j.job_type = ANY (p_types) THEN j.job_type ELSE '(undeclared)' END AS job_type,
               j.state, extract(epoch FROM j.started_at - greatest(j.run_at, j.created_at))::float8 AS wait,
               extract(epoch FROM j.completed_at - j.started_at)::float8 AS run
        FROM unnest(v_tenants) t CROSS JOIN LATERAL (
            SELECT h.queue, h.job_type, h.state, h.run_at, h.created_at, h.started_at, h.completed_at
            FROM public.job_history h
            WHERE h.tenant_id = t AND h.completed_at > v_now - v_window
            ORDER BY h.completed_at DESC LIMIT p_rows
        ) j LIMIT p_rows
    ), by_type AS (
        SELECT e.queue, e.job_type,
               count(*) FILTER (WHERE e.state = 'SUCCEEDED') AS succeeded,
               count(*) FILTER (WHERE e.state IN ('FAILED', 'RETRIED', 'ABANDONED')) AS failed,
               count(*) FILTER (WHERE e.state = 'CANCELLED') AS cancelled,
               percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY greatest(e.wait, 0)) AS wait_s,
               percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY greatest(e.run, 0))
                   FILTER (WHERE e.state <> 'CANCELLED') AS run_s
        FROM ended e GROUP BY 1, 2
    )
    SELECT coalesce(jsonb_agg(to_jsonb(b)), '[]') INTO v_types FROM by_type b;
    RETURN jsonb_build_object('window_s', extract(epoch FROM v_window), 'types', v_types);
END
$$;
