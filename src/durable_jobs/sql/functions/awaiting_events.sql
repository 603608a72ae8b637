-- Events that were posted long enough ago to be looked for in Prefect, oldest first.
CREATE OR REPLACE FUNCTION awaiting_events(p_settled interval, p_limit integer, p_now timestamptz)
RETURNS TABLE (event_id uuid, occurred_at timestamptz, posted_at timestamptz, waited interval)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    PERFORM set_tenants(array(SELECT list_tenants('unpublished')));
    RETURN QUERY
        SELECT e.event_id, e.occurred_at, e.posted_at, v_now - e.posted_at FROM job_events e
        WHERE e.published_at IS NULL AND e.posted_at <= v_now - p_settled
        ORDER BY e.posted_at, e.occurred_at LIMIT p_limit;
END
$$;
