-- Tells that a queue refused a registration, at most once a minute however many are refused.
CREATE OR REPLACE FUNCTION tell_full(p_queue text, p_max integer, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
BEGIN
    -- Who comes at the same time waits for the row and then sees that it was said.
    INSERT INTO health_states AS h (target, check_name, failing, announced, since, said_at, severity, changes)
    VALUES ('queue:' || p_queue, 'full', true, true, v_now, v_now, 'WARNING', 1)
    ON CONFLICT (target, check_name) DO UPDATE SET said_at = v_now, changes = h.changes + 1
    WHERE h.said_at <= v_now - interval '1 minute';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO job_events (event, severity, payload, occurred_at)
    VALUES ('jobs.queue.full', 'WARNING', jsonb_build_object('queue', p_queue, 'maxPending', p_max, 'pending', (
        SELECT coalesce(sum(q.pending), 0) FROM queue_pending q WHERE q.queue = p_queue)), v_now);
    RETURN true;
END
$$;
