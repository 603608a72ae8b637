-- Takes events that Prefect does not have yet, oldest first, tenants by turns from the one after p_after,
-- and notes since when they are on their way. Nothing stays locked while Prefect is asked. Each row names
-- the last tenant that was looked at: the next call goes on behind it.
CREATE OR REPLACE FUNCTION take_events(p_limit integer, p_after text, p_now timestamptz) RETURNS TABLE (
    event_id uuid, tenant_id text, event text, job_id uuid, severity text, payload text,
    occurred_at timestamptz, posted_at timestamptz, flow_run_id uuid, task_run_id uuid, last_tenant text
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_tenants text[] := array(SELECT list_tenants('unposted', NULL, p_after, p_limit));
    -- Twice a fair part, so that few tenants fill the limit and many do not have all their events locked.
    v_part integer := ceil(2.0 * p_limit / (cardinality(v_tenants) + 1));
BEGIN
    PERFORM set_tenants(v_tenants);
    RETURN QUERY
        WITH waiting AS MATERIALIZED (
            SELECT w.event_id, row_number() OVER (PARTITION BY w.tenant_id ORDER BY w.occurred_at) AS turn,
                   w.occurred_at
            FROM (
                SELECT s.* FROM (
                    SELECT e.event_id, e.tenant_id, e.occurred_at FROM job_events e
                    WHERE e.tenant_id IS NULL AND e.published_at IS NULL AND e.posted_at IS NULL
                    ORDER BY e.occurred_at LIMIT v_part FOR UPDATE SKIP LOCKED) s
                UNION ALL
                SELECT m.* FROM unnest(v_tenants) AS t (tenant) CROSS JOIN LATERAL (
                    SELECT e.event_id, e.tenant_id, e.occurred_at FROM job_events e
                    WHERE e.tenant_id = t.tenant AND e.published_at IS NULL AND e.posted_at IS NULL
                    ORDER BY e.occurred_at LIMIT v_part FOR UPDATE SKIP LOCKED) m
            ) w
            ORDER BY turn, w.occurred_at LIMIT p_limit
        ), taken AS (
            UPDATE job_events e SET posted_at = v_now FROM waiting w WHERE e.event_id = w.event_id
            RETURNING e.*
        )
        SELECT t.event_id, t.tenant_id, t.event, t.job_id, t.severity, t.payload::text, t.occurred_at,
               t.posted_at, coalesce(j.flow_run_id, x.flow_run_id), j.task_run_id,
               v_tenants[cardinality(v_tenants)]
        FROM taken t
        LEFT JOIN job_history j ON j.job_id = t.job_id
        LEFT JOIN job_executors x ON x.executor_id = j.executor_id
        ORDER BY t.occurred_at;
END
$$;
