-- The queues whose oldest due job waits longer than p_after, each told once when that begins; what is paused
-- waits because somebody wants it to.
CREATE OR REPLACE FUNCTION tell_stalled(p_after interval, p_now timestamptz) RETURNS TABLE (
    queue text, pending bigint, waited interval
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
BEGIN
    RETURN QUERY
        WITH stalled AS (
            SELECT c.queue, sum(c.jobs)::bigint AS pending, v_now - min(c.oldest_run_at) AS waited
            FROM count_jobs() c
            WHERE c.state = 'PENDING' AND NOT EXISTS (
                SELECT FROM paused p WHERE (p.kind, p.name) IN (('queue', c.queue), ('type', c.job_type)))
            GROUP BY c.queue HAVING min(c.oldest_run_at) < v_now - p_after
        ), over AS (
            UPDATE health_states h SET failing = false, since = v_now
            WHERE h.check_name = 'stalled' AND h.failing
              AND NOT EXISTS (SELECT FROM stalled s WHERE h.target = 'queue:' || s.queue)
        ), begun AS (
            INSERT INTO health_states AS h (
                target, check_name, failing, announced, since, said_at, severity, changes)
            SELECT 'queue:' || s.queue, 'stalled', true, true, v_now, v_now, 'WARNING', 1 FROM stalled s
            ON CONFLICT (target, check_name) DO UPDATE SET
                failing = true, since = v_now, said_at = v_now, changes = h.changes + 1
            WHERE NOT h.failing
            RETURNING h.target
        ), told AS (
            INSERT INTO job_events (event, severity, payload, occurred_at)
            SELECT 'jobs.queue.stalled', 'WARNING', jsonb_build_object(
                       'queue', s.queue, 'pending', s.pending,
                       'oldestWaitsSeconds', floor(extract(epoch FROM s.waited))), v_now
            FROM stalled s JOIN begun b ON b.target = 'queue:' || s.queue
        )
        SELECT s.queue, s.pending, s.waited FROM stalled s ORDER BY s.queue;
END
$$;
