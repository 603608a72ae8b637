-- Takes room for as many of p_wanted waiting jobs as the queue has, and returns their shards.
CREATE OR REPLACE FUNCTION reserve_some(p_queue text, p_max integer, p_wanted integer) RETURNS smallint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_wanted integer := p_wanted;
    v_counters integer := least(16, p_max);
    v_shards smallint[];
BEGIN
    IF p_max IS NOT NULL THEN
        PERFORM fold_pending(p_queue);
        -- Counters are made as they are needed: one that is missing counts nothing.
        SELECT least(p_wanted, sum(greatest(0,
            p_max / v_counters + (n < p_max % v_counters)::integer - coalesce(q.pending, 0))))
        INTO v_wanted
        FROM generate_series(0, v_counters - 1) n LEFT JOIN queue_pending q ON q.queue = p_queue AND q.shard = n;
    END IF;
    WHILE v_wanted > 0 LOOP
        BEGIN
            v_shards := reserve_pending(p_queue, p_max, v_wanted);
            IF v_shards IS NOT NULL THEN
                RETURN v_shards;
            END IF;
            -- Undo what it took before it found too little.
            RAISE EXCEPTION USING ERRCODE = 'DJ002', MESSAGE = 'queue ' || p_queue || ' is full';
        EXCEPTION WHEN SQLSTATE 'DJ002' THEN
            v_wanted := v_wanted / 2;
        END;
    END LOOP;
    RETURN '{}';
END
$$;
