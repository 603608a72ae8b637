-- Inserts validated requests of one type, all or none. The first row returned is the time of
-- registration; further ones are requests (by their number n) whose idempotency key already names
-- a chain, with the chain's current job. The requests of a call have distinct keys.
-- Errors: DJ001 the key names another request (detail: n), DJ002 the queue is full,
-- DJ003 a known job was purged meanwhile (ask again).
CREATE OR REPLACE FUNCTION register_jobs(
    p_tenant text, p_type jsonb, p_jobs jsonb, p_keyed boolean, p_now timestamptz
) RETURNS TABLE (n integer, at timestamptz, existing jsonb)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_queue text := p_type ->> 'queue';
    v_known integer[] := '{}';
    v_shards smallint[];
    v_inserted integer[];
    v_conflict record;
    v_answered integer;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    IF p_keyed THEN
        IF jsonb_array_length(p_jobs) <= 16 THEN
            -- Callers with the same key wait for each other here, where they hold no room yet: else those
            -- who wait would fill the counters of an empty queue. (The unique index decides; a big bulk
            -- would need too many locks.)
            PERFORM pg_advisory_xact_lock(k.lock) FROM (
                SELECT hashtextextended(p_tenant || ' ' || r.idempotency_key, 0) AS lock
                FROM jsonb_to_recordset(p_jobs) AS r (idempotency_key text)
                WHERE r.idempotency_key IS NOT NULL ORDER BY 1) k;
        END IF;
        SELECT coalesce(array_agg(r.n), '{}') INTO v_known
        FROM jsonb_to_recordset(p_jobs) AS r (n integer, idempotency_key text)
        JOIN job_history j ON j.tenant_id = p_tenant AND j.idempotency_key = r.idempotency_key
            AND j.parent_job_id IS NULL AND j.replay_of IS NULL;
    END IF;
    v_shards := reserve_pending(
        v_queue, (p_type ->> 'max_pending')::integer, jsonb_array_length(p_jobs) - cardinality(v_known));
    IF v_shards IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'DJ002', MESSAGE = 'queue ' || v_queue || ' is full';
    END IF;
    WITH fresh AS (
        SELECT r.*, row_number() OVER (ORDER BY r.n) AS k
        FROM jsonb_to_recordset(p_jobs) AS r (
            n integer, job_id uuid, payload jsonb, payload_hash text, priority smallint, run_at timestamptz,
            idempotency_key text, correlation_id text)
        WHERE r.n <> ALL (v_known)
    ), inserted AS (
        INSERT INTO job_history (
            job_id, tenant_id, job_type, queue, priority, run_at, payload, payload_version, payload_hash,
            idempotency_key, correlation_id, submitted_by, retryable, max_retries, timeout, root_job_id,
            pending_shard, created_at, updated_at)
        SELECT f.job_id, p_tenant, p_type ->> 'job_type', v_queue, f.priority, coalesce(f.run_at, v_now),
               f.payload, (p_type ->> 'payload_version')::integer, f.payload_hash, f.idempotency_key,
               f.correlation_id, p_type ->> 'submitted_by', (p_type ->> 'retryable')::boolean,
               (p_type ->> 'max_retries')::integer, (p_type ->> 'timeout')::interval, f.job_id,
               v_shards[f.k], v_now, v_now
        FROM fresh f
        -- One order for all callers: two that share several keys wait for each other, not in a circle.
        ORDER BY f.idempotency_key, f.n
        ON CONFLICT (tenant_id, idempotency_key)
            WHERE parent_job_id IS NULL AND replay_of IS NULL AND idempotency_key IS NOT NULL DO NOTHING
        RETURNING job_id
    )
    SELECT coalesce(array_agg(f.n), '{}') INTO v_inserted FROM fresh f JOIN inserted i ON i.job_id = f.job_id;
    PERFORM wake_executors(v_queue);
    RETURN QUERY SELECT NULL::integer, v_now, NULL::jsonb;
    IF NOT p_keyed OR cardinality(v_inserted) = jsonb_array_length(p_jobs) THEN
        PERFORM set_tenants('{}');
        RETURN;
    END IF;
    -- Room taken for a request that another transaction registered meanwhile.
    PERFORM release_pending(v_queue, array(
        SELECT v_shards[f.k] FROM (
            SELECT r.n, row_number() OVER (ORDER BY r.n) AS k FROM jsonb_to_recordset(p_jobs) AS r (n integer)
            WHERE r.n <> ALL (v_known)
        ) f WHERE f.n <> ALL (v_inserted)));
    FOR v_conflict IN
        SELECT r.n, r.idempotency_key, root.job_id
        FROM jsonb_to_recordset(p_jobs) AS r (n integer, idempotency_key text, payload_hash text)
        JOIN job_history root ON root.tenant_id = p_tenant AND root.idempotency_key = r.idempotency_key
            AND root.parent_job_id IS NULL AND root.replay_of IS NULL
        WHERE r.n <> ALL (v_inserted) AND root.payload_hash <> r.payload_hash
        ORDER BY r.n LIMIT 1
    LOOP
        RAISE EXCEPTION USING ERRCODE = 'DJ001', DETAIL = v_conflict.n::text,
            MESSAGE = 'the key is already used by job ' || v_conflict.job_id;
    END LOOP;
    RETURN QUERY
        SELECT r.n, root.created_at, to_jsonb(chain)
        FROM jsonb_to_recordset(p_jobs) AS r (n integer, idempotency_key text)
        JOIN job_history root ON root.tenant_id = p_tenant AND root.idempotency_key = r.idempotency_key
            AND root.parent_job_id IS NULL AND root.replay_of IS NULL
        CROSS JOIN LATERAL (
            SELECT c.* FROM job_history c
            WHERE c.job_id = root.job_id OR (c.root_job_id = root.job_id AND c.parent_job_id IS NOT NULL)
            ORDER BY c.retry_count DESC LIMIT 1
        ) chain
        WHERE r.n <> ALL (v_inserted);
    GET DIAGNOSTICS v_answered = ROW_COUNT;
    IF v_answered + cardinality(v_inserted) < jsonb_array_length(p_jobs) THEN
        RAISE EXCEPTION USING ERRCODE = 'DJ003', MESSAGE = 'the job of a known key was purged meanwhile';
    END IF;
    PERFORM set_tenants('{}');
END
$$;
