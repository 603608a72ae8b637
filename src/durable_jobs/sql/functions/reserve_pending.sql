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
    -- Counters are made as they are needed. One that another transaction is making is left to it: to
    -- insert it too would mean to wait for that transaction's end.
    FOR v_shard IN
        SELECT n FROM generate_series(0, v_shards - 1) n
        WHERE cardinality(v_taken) < p_wanted
          AND NOT EXISTS (SELECT FROM queue_pending q WHERE q.queue = p_queue AND q.shard = n)
        ORDER BY (n + pg_backend_pid()) % v_shards
    LOOP
        EXIT WHEN cardinality(v_taken) >= p_wanted;
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtext('durable_jobs.pending ' || p_queue), v_shard);
        v_room := least(p_max / v_shards + (v_shard < p_max % v_shards)::integer,
                        p_wanted - cardinality(v_taken));
        INSERT INTO queue_pending (queue, shard, pending) VALUES (p_queue, v_shard, v_room)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            v_taken := v_taken || array_fill(v_shard, ARRAY[v_room]);
        END IF;
    END LOOP;
    IF cardinality(v_taken) >= p_wanted THEN
        RETURN v_taken;
    END IF;
    PERFORM fold_pending(p_queue);
    v_timeout := current_setting('lock_timeout');
    BEGIN
        PERFORM set_config('lock_timeout', '500ms', true);
        FOR v_shard IN
            SELECT n FROM generate_series(0, v_shards - 1) n
            LEFT JOIN queue_pending q ON q.queue = p_queue AND q.shard = n
            WHERE q.shard IS NULL OR q.pending < p_max / v_shards + (n < p_max % v_shards)::integer
            ORDER BY n
        LOOP
            EXIT WHEN cardinality(v_taken) >= p_wanted;
            INSERT INTO queue_pending (queue, shard) VALUES (p_queue, v_shard) ON CONFLICT DO NOTHING;
            SELECT least(p_max / v_shards + (v_shard < p_max % v_shards)::integer - q.pending,
                         p_wanted - cardinality(v_taken)) INTO v_room
            FROM queue_pending q WHERE q.queue = p_queue AND q.shard = v_shard FOR UPDATE;
            IF v_room > 0 THEN
                UPDATE queue_pending SET pending = pending + v_room WHERE queue = p_queue AND shard = v_shard;
                v_taken := v_taken || array_fill(v_shard, ARRAY[v_room]);
            END IF;
        END LOOP;
        PERFORM set_config('lock_timeout', v_timeout, true);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN NULL;
    END;
    RETURN CASE WHEN cardinality(v_taken) >= p_wanted THEN v_taken END;
END
$$;
