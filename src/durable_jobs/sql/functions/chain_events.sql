-- What was told of these jobs of a tenant, oldest first.
CREATE OR REPLACE FUNCTION chain_events(p_tenant text, p_jobs uuid[])
RETURNS TABLE (job_id uuid, event text, severity text, occurred_at timestamptz, by text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    RETURN QUERY
        SELECT e.job_id, e.event, e.severity, e.occurred_at, e.payload ->> 'by'
        FROM job_events e WHERE e.job_id = ANY (p_jobs) ORDER BY e.occurred_at, e.event_id;
END
$$;
