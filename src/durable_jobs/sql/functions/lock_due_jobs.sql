-- Locks due chains row by row and returns the rows of those that are locked as a whole and still due; a
-- chain of which a row is held by somebody else is left alone. `p_alone` are jobs without retries,
-- `p_roots` the first jobs of longer chains. A retry made since the look shows as a job whose child is not
-- among the locked. The caller names the tenant and the way to look things up.
CREATE OR REPLACE FUNCTION lock_due_jobs(p_alone uuid[], p_roots uuid[], p_before timestamptz) RETURNS tid[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_alone tid[];
    v_chains tid[] := '{}';
BEGIN
    SELECT coalesce(array_agg(l.row), '{}') INTO v_alone FROM (
        SELECT h.ctid AS row FROM unnest(p_alone) AS wanted (job_id) JOIN job_history h ON h.job_id = wanted.job_id
        WHERE h.completed_at < p_before AND h.retry_child_id IS NULL
        FOR UPDATE OF h SKIP LOCKED
    ) l;
    IF cardinality(p_roots) > 0 THEN
        WITH roots AS MATERIALIZED (
            SELECT h.ctid AS row, h.job_id, h.root_job_id, h.retry_child_id, h.completed_at
            FROM unnest(p_roots) AS wanted (job_id) JOIN job_history h ON h.job_id = wanted.job_id
            FOR UPDATE OF h SKIP LOCKED
        ), retries AS MATERIALIZED (
            SELECT h.ctid AS row, h.job_id, h.root_job_id, h.retry_child_id, h.completed_at
            FROM unnest(p_roots) AS wanted (job_id)
            JOIN job_history h ON h.root_job_id = wanted.job_id AND h.parent_job_id IS NOT NULL
            FOR UPDATE OF h SKIP LOCKED
        ), whole AS (
            SELECT array_agg(l.row) AS rows FROM (TABLE roots UNION ALL TABLE retries) l
            GROUP BY l.root_job_id
            HAVING bool_and(l.completed_at < p_before) AND bool_and(l.completed_at IS NOT NULL)
               AND coalesce(array_agg(l.retry_child_id) FILTER (WHERE l.retry_child_id IS NOT NULL), '{}')
                   <@ array_agg(l.job_id)
               -- The root is among them, or is gone already and holds nobody back.
               AND (bool_or(l.job_id = l.root_job_id)
                    OR (SELECT count(*) FROM job_history h WHERE h.job_id = l.root_job_id) = 0)
        )
        SELECT coalesce(array_agg(r.row), '{}') INTO v_chains
        FROM whole w CROSS JOIN LATERAL unnest(w.rows) AS r (row);
    END IF;
    RETURN v_alone || v_chains;
END
$$;
