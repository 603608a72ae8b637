-- Gives the room of jobs that no longer wait back to their shards, without waiting for one:
-- what a locked shard cannot take now is written down and folded in later by fold_pending.
CREATE OR REPLACE FUNCTION release_pending(p_queue text, p_shards smallint[]) RETURNS void
LANGUAGE sql AS $$
    WITH freed AS (
        SELECT s AS shard, count(*)::integer AS n FROM unnest(p_shards) s WHERE s IS NOT NULL GROUP BY s
    ), locked AS MATERIALIZED (
        SELECT q.shard FROM queue_pending q
        WHERE q.queue = p_queue AND q.shard IN (SELECT shard FROM freed) FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE queue_pending q SET pending = q.pending - f.n FROM freed f
        WHERE q.queue = p_queue AND q.shard = f.shard AND q.shard IN (SELECT shard FROM locked)
    )
    INSERT INTO queue_pending_released (queue, shard, released)
    SELECT p_queue, shard, n FROM freed WHERE shard NOT IN (SELECT shard FROM locked);
$$;
