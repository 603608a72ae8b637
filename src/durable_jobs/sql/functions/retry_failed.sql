-- Retries locked dead letters as decided for each: one child beside RETRIED in this transaction, as far
-- as the queue has room; or, with a reason, no retry ever. Returns what became of each:
-- retried, refused, or full.
CREATE OR REPLACE FUNCTION retry_failed(
    p_tenant text, p_decisions jsonb, p_bounds jsonb, p_by text, p_each integer, p_now timestamptz
) RETURNS TABLE (job_id uuid, outcome text, child_id uuid)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_queue text;
    v_ids uuid[];
    v_children uuid[];
    v_run_at timestamptz[];
    v_shards smallint[];
    v_more jsonb[];
    v_n integer;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    WITH refused AS (
        UPDATE job_history j SET retryable = false, updated_at = v_now,
            failed_reason = left(j.failed_reason, 3000) || ' (not retried: ' || left(d.refuse, 900) || ')'
        FROM jsonb_to_recordset(p_decisions) AS d (job_id uuid, refuse text)
        WHERE d.refuse IS NOT NULL AND j.job_id = d.job_id AND j.state = 'FAILED' AND j.retryable
        RETURNING j.job_id
    )
    SELECT coalesce(array_agg(r.job_id), '{}') INTO v_ids FROM refused r;
    IF cardinality(v_ids) > 0 THEN
        PERFORM tell_jobs(p_tenant, 'jobs.job.failed', 'CRITICAL', v_ids, '{}', p_by, p_each, v_now);
        RETURN QUERY SELECT r, 'refused', NULL::uuid FROM unnest(v_ids) r;
    END IF;
    FOR v_queue, v_ids, v_children, v_run_at IN
        SELECT j.queue, array_agg(j.job_id ORDER BY d.n), array_agg(d.child_id ORDER BY d.n),
               array_agg(v_now + coalesce(d.delay, '0') ORDER BY d.n)
        FROM jsonb_to_recordset(p_decisions) AS d (
            n integer, job_id uuid, child_id uuid, refuse text, delay interval)
        JOIN job_history j ON j.job_id = d.job_id
        WHERE d.refuse IS NULL AND j.state = 'FAILED' AND j.retryable AND j.retry_count < j.max_retries
          -- Looked for again under the lock: a resubmission may have been quicker.
          AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)
        GROUP BY j.queue ORDER BY j.queue
    LOOP
        v_shards := reserve_some(v_queue, (p_bounds ->> v_queue)::integer, cardinality(v_ids));
        v_n := cardinality(v_shards);
        INSERT INTO job_history (
            job_id, tenant_id, job_type, queue, priority, run_at, payload, payload_version, payload_hash,
            idempotency_key, correlation_id, submitted_by, retryable, retry_count, max_retries, timeout,
            parent_job_id, root_job_id, origin_job_id, crash_count, pending_shard, created_at, updated_at)
        SELECT v_children[k], j.tenant_id, j.job_type, j.queue, j.priority, v_run_at[k], j.payload,
               j.payload_version, j.payload_hash, j.idempotency_key, j.correlation_id, j.submitted_by, true,
               j.retry_count + 1, j.max_retries, j.timeout, j.job_id, j.root_job_id, j.origin_job_id,
               j.crash_count, v_shards[k], v_now, v_now
        FROM generate_series(1, v_n) k JOIN job_history j ON j.job_id = v_ids[k];
        IF v_n > 0 THEN
            -- The events tell how the jobs were when they were retried.
            v_more := array(SELECT jsonb_build_object('retryChildId', c) FROM unnest(v_children[:v_n]) c);
            PERFORM tell_jobs(
                p_tenant, 'jobs.job.retried', 'INFO', v_ids[:v_n], v_more, p_by, p_each, v_now);
            UPDATE job_history j SET state = 'RETRIED', retry_child_id = v_children[k], updated_at = v_now
            FROM generate_series(1, v_n) k WHERE j.job_id = v_ids[k];
            PERFORM wake_executors(v_queue);
        END IF;
        RETURN QUERY
            SELECT v_ids[k], CASE WHEN k <= v_n THEN 'retried' ELSE 'full' END,
                   CASE WHEN k <= v_n THEN v_children[k] END
            FROM generate_series(1, cardinality(v_ids)) k;
    END LOOP;
END
$$;
