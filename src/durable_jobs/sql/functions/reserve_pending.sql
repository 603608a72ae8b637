-- Takes room for p_wanted waiting jobs and returns the shard of each, or NULL when there is none.
-- 16 counters share the bound, so that submitters rarely meet; each counter stays within its own
-- part, so their sum never passes the bound. Waits for a locked counter only when the free ones
-- are full, and then not long: a caller's open transaction may hold it.
CREATE OR REPLACE FUNCTION reserve_pending(p_queue text, p_max integer, p_wanted integer) RETURNS smallint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_shards integer := least(16, p_max);
    v_taken smallint[] := '{}';
    v_shard smallint;
    v_room integer;
    v_timeout text;
BEGIN
    IF p_max IS NULL THEN
        RETURN array_fill(NULL::smallint, ARRAY[p_wanted]);
    END IF;
    IF NOT EXISTS (SELECT FROM queue_pending WHERE queue = p_queue) THEN
        INSERT INTO queue_pending (queue, shard) SELECT p_queue, n FROM generate_series(0, 15) n
        ON CONFLICT DO NOTHING;
    END IF;
    -- Each connection prefers a shard of its own.
    FOR v_shard, v_room IN
        SELECT q.shard, p_max / v_shards + (q.shard < p_max % v_shards)::integer - q.pending
        FROM queue_pending q
        WHERE q.queue = p_queue AND q.shard < v_shards
          AND q.pending < p_max / v_shards + (q.shard < p_max % v_shards)::integer
        ORDER BY (q.shard + pg_backend_pid()) % v_shards
        LIMIT p_wanted FOR UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN cardinality(v_taken) >= p_wanted;
        v_room := least(v_room, p_wanted - cardinality(v_taken));
        UPDATE queue_pending SET pending = pending + v_room WHERE queue = p_queue AND shard = v_shard;
        v_taken := v_taken || array_fill(v_shard, ARRAY[v_room]);
    END LOOP;
    IF cardinality(v_taken) >= p_wanted THEN
        RETURN v_taken;
    END IF;
    PERFORM fold_pending(p_queue);
    v_timeout := current_setting('lock_timeout');
    BEGIN
        PERFORM set_config('lock_timeout', '500ms', true);
        FOR v_shard, v_room IN
            SELECT q.shard, p_max / v_shards + (q.shard < p_max % v_shards)::integer - q.pending
            FROM queue_pending q
            WHERE q.queue = p_queue AND q.shard < v_shards
              AND q.pending < p_max / v_shards + (q.shard < p_max % v_shards)::integer
            ORDER BY q.shard FOR UPDATE
        LOOP
            EXIT WHEN cardinality(v_taken) >= p_wanted;
            v_room := least(v_room, p_wanted - cardinality(v_taken));
            UPDATE queue_pending SET pending = pending + v_room WHERE queue = p_queue AND shard = v_shard;
            v_taken := v_taken || array_fill(v_shard, ARRAY[v_room]);
        END LOOP;
        PERFORM set_config('lock_timeout', v_timeout, true);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN NULL;
    END;
    RETURN CASE WHEN cardinality(v_taken) >= p_wanted THEN v_taken END;
END
$$;
