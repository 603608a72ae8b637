-- The only reader across tenants. It returns tenant ids and nothing else; its owner may read
-- only the columns it needs. The kinds: with waiting jobs in a queue, with running jobs, with jobs
-- whose executor crashed, with dead letters, with unpublished events, with events not even posted, with any job at all, with anything
-- that retention looks at (jobs, effects, published events). From the tenant after p_after, around.
CREATE OR REPLACE FUNCTION list_tenants(
    p_kind text, p_queue text DEFAULT NULL, p_after text DEFAULT '', p_limit integer DEFAULT NULL
) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public
AS $$
DECLARE
    v_tenant text;
    v_first text;
    v_from text := coalesce(p_after, '');
    v_wrapped boolean := false;
    v_count integer := 0;
BEGIN
    IF p_kind = 'running' THEN
        -- Bounded by what runs, so it needs no index of its own.
        RETURN QUERY SELECT DISTINCT j.tenant_id FROM public.job_history j WHERE j.state = 'RUNNING' ORDER BY 1;
        RETURN;
    ELSIF p_kind = 'suspect' THEN
        RETURN QUERY SELECT DISTINCT j.tenant_id FROM public.job_history j
                     WHERE j.state = 'PENDING' AND j.crash_count > 0 ORDER BY 1;
        RETURN;
    END IF;
    LOOP
        -- A loose index scan: one probe for each tenant, whatever the number of its rows.
        CASE p_kind
            WHEN 'pending' THEN
                SELECT min(j.tenant_id) INTO v_tenant FROM public.job_history j
                WHERE j.state = 'PENDING' AND j.queue = p_queue AND j.tenant_id > v_from;
            WHEN 'failed' THEN
                SELECT min(j.tenant_id) INTO v_tenant FROM public.job_history j
                WHERE j.state = 'FAILED' AND j.retryable AND j.tenant_id > v_from;
            WHEN 'unpublished' THEN
                SELECT min(e.tenant_id) INTO v_tenant FROM public.job_events e
                WHERE e.published_at IS NULL AND e.tenant_id > v_from;
            WHEN 'unposted' THEN
                SELECT min(e.tenant_id) INTO v_tenant FROM public.job_events e
                WHERE e.published_at IS NULL AND e.posted_at IS NULL AND e.tenant_id > v_from;
            WHEN 'any' THEN
                SELECT min(j.tenant_id) INTO v_tenant FROM public.job_history j WHERE j.tenant_id > v_from;
            WHEN 'purgeable' THEN
                SELECT least(
                    (SELECT min(j.tenant_id) FROM public.job_history j WHERE j.tenant_id > v_from),
                    (SELECT min(f.tenant_id) FROM public.job_effects f WHERE f.tenant_id > v_from),
                    (SELECT min(coalesce(e.tenant_id, '')) FROM public.job_events e
                     WHERE e.published_at IS NOT NULL AND coalesce(e.tenant_id, '') > v_from)) INTO v_tenant;
            ELSE
                RAISE EXCEPTION 'list_tenants: unknown kind %', p_kind;
        END CASE;
        IF v_tenant IS NULL THEN
            EXIT WHEN v_wrapped OR coalesce(p_after, '') = '';
            v_wrapped := true;
            v_from := '';
            CONTINUE;
        END IF;
        EXIT WHEN v_wrapped AND v_tenant > p_after;
        EXIT WHEN v_tenant = v_first;
        v_first := coalesce(v_first, v_tenant);
        RETURN NEXT v_tenant;
        v_count := v_count + 1;
        EXIT WHEN v_count = p_limit;
        v_from := v_tenant;
    END LOOP;
END
$$;
