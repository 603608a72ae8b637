-- Folds what was released beside locked shards into the shards that are free now.
CREATE OR REPLACE FUNCTION fold_pending(p_queue text) RETURNS void
LANGUAGE sql AS $$
    WITH locked AS MATERIALIZED (
        SELECT q.shard FROM queue_pending q
        WHERE q.queue = p_queue
          AND q.shard IN (SELECT r.shard FROM queue_pending_released r WHERE r.queue = p_queue)
        FOR UPDATE SKIP LOCKED
    ), folded AS (
        DELETE FROM queue_pending_released r
        WHERE r.queue = p_queue AND r.shard IN (SELECT shard FROM locked)
        RETURNING r.shard, r.released
    )
    UPDATE queue_pending q SET pending = q.pending - f.n
    FROM (SELECT shard, sum(released)::integer AS n FROM folded GROUP BY shard) f
    WHERE q.queue = p_queue AND q.shard = f.shard;
$$;
