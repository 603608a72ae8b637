-- Puts events into the outbox; one without a tenant belongs to the system.
CREATE OR REPLACE FUNCTION record_events(p_events jsonb) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(array(
        SELECT DISTINCT e.tenant_id FROM jsonb_to_recordset(p_events) AS e (tenant_id text)
        WHERE e.tenant_id IS NOT NULL));
    INSERT INTO job_events (tenant_id, event, job_id, severity, payload)
    SELECT e.tenant_id, e.event, e.job_id, e.severity, coalesce(e.payload, '{}')
    FROM jsonb_to_recordset(p_events) AS e (tenant_id text, event text, job_id uuid, severity text, payload jsonb);
END
$$;
