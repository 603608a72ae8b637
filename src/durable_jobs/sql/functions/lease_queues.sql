-- Shares each queue's concurrency among the executors that beat, and returns what this one holds.
-- The sum over all executors, dead ones included, never passes the bound: a lease is given up by
-- its holder, or by the reconciler once the holder's jobs are settled, never taken away.
-- p_wants: [{queue, concurrency, in_flight}]; what is in flight stays held.
CREATE OR REPLACE FUNCTION lease_queues(p_executor uuid, p_wants jsonb, p_stale interval)
RETURNS TABLE (queue text, held integer)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_me job_executors;
    v_want record;
    v_sharers integer;
    v_rank integer;
    v_share integer;
    v_others integer;
    v_held integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('durable_jobs.queue_leases'));
    SELECT * INTO v_me FROM job_executors e WHERE e.executor_id = p_executor;
    FOR v_want IN
        SELECT * FROM jsonb_to_recordset(p_wants) AS w (queue text, concurrency integer, in_flight integer)
    LOOP
        SELECT count(*), count(*) FILTER (WHERE (e.started_at, e.executor_id) > (v_me.started_at, v_me.executor_id))
        INTO v_sharers, v_rank
        FROM job_executors e
        WHERE v_want.queue = ANY (e.queues) AND NOT e.draining
          AND (e.last_seen_at > now() - p_stale OR e.executor_id = p_executor);
        SELECT coalesce(sum(l.held), 0) INTO v_others FROM queue_leases l
        WHERE l.queue = v_want.queue AND l.executor_id <> p_executor;
        -- The newest get what does not divide evenly.
        v_share := CASE WHEN v_me.draining OR v_me.executor_id IS NULL OR v_sharers = 0 THEN 0
                   ELSE v_want.concurrency / v_sharers
                        + (v_rank < v_want.concurrency % v_sharers)::integer END;
        v_held := greatest(v_want.in_flight, least(v_share, v_want.concurrency - v_others));
        IF v_me.executor_id IS NOT NULL THEN
            INSERT INTO queue_leases (queue, executor_id, held) VALUES (v_want.queue, p_executor, v_held)
            ON CONFLICT (queue, executor_id) DO UPDATE SET held = excluded.held, updated_at = now()
            WHERE queue_leases.held <> excluded.held;
        END IF;
        PERFORM fold_pending(v_want.queue);
        queue := v_want.queue;
        held := v_held;
        RETURN NEXT;
    END LOOP;
END
$$;
