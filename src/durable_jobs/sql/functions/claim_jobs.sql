-- Takes at most p_limit jobs of one queue: tenants by turns, within a tenant the claim order.
-- p_fronts null: a full claim. Else only [tenant, claim_order, run_at] fronts are looked at, from
-- run_at on, which steps over the dead index entries that a held snapshot keeps.
-- A suspect, whose executor has crashed before, is left to run alone (claim_job).
-- It waits for nothing: rows and counters that are locked are left to others.
-- An executor that is not known gets nothing: it was given up while it was frozen. What it leaves out
-- (types that it does not declare, or that its successor executes) waits for others.
CREATE OR REPLACE FUNCTION claim_jobs(
    p_executor uuid, p_queue text, p_limit integer, p_after text, p_fronts jsonb, p_now timestamptz
) RETURNS SETOF job_history
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    -- A large claim gives each tenant's turn ten jobs and more: a turn costs as much as three jobs.
    v_chunk integer := least(p_limit, 25);
    v_last text;
    v_tenants text[];
    v_all text[] := '{}';
    v_tenant text;
    v_paused text[];
    v_left integer := p_limit;
    v_asked integer;
    v_turns integer;
    v_order integer;
    v_front timestamptz;
    v_due timestamptz;
    v_got uuid[];
    v_shards smallint[];
    v_ids uuid[] := '{}';
    v_freed smallint[] := '{}';
BEGIN
    SELECT e.left_out INTO v_paused FROM job_executors e WHERE e.executor_id = p_executor;
    IF NOT FOUND OR p_limit < 1 OR EXISTS (SELECT FROM paused WHERE kind = 'queue' AND name = p_queue) THEN
        RETURN;
    END IF;
    v_paused := v_paused || array(SELECT name FROM paused WHERE kind = 'type');
    LOOP
        IF p_fronts IS NULL THEN
            v_tenants := array(SELECT list_tenants('pending', p_queue, coalesce(v_last, p_after), v_chunk));
        ELSE
            v_tenants := array(SELECT f ->> 0 FROM jsonb_array_elements(p_fronts) WITH ORDINALITY AS x (f, n)
                               GROUP BY f ->> 0 ORDER BY min(n));
        END IF;
        -- A further chunk ends where the circle closes, even if the tenant it began with has gone.
        IF v_last IS NOT NULL THEN
            v_tenants := array(
                SELECT t FROM unnest(v_tenants) WITH ORDINALITY AS x (t, n)
                WHERE (t <= p_after, t) > (v_last <= p_after, v_last) ORDER BY n);
        END IF;
        EXIT WHEN cardinality(v_tenants) = 0;
        v_last := v_tenants[cardinality(v_tenants)];
        v_all := v_all || v_tenants;
        PERFORM set_tenants(v_all);
        v_turns := cardinality(v_tenants);
        FOREACH v_tenant IN ARRAY v_tenants LOOP
            EXIT WHEN v_left <= 0;
            v_asked := ceil(v_left::numeric / v_turns);
            v_turns := v_turns - 1;
            v_order := -2147483648;
            LOOP
                IF p_fronts IS NULL THEN
                    -- The next group of equal rank; only delayed jobs in it cost one probe, not a scan.
                    SELECT j.claim_order, j.run_at INTO v_order, v_due FROM job_history j
                    WHERE j.queue = p_queue AND j.tenant_id = v_tenant AND j.state = 'PENDING'
                      AND j.claim_order > v_order
                    ORDER BY j.claim_order, j.run_at LIMIT 1;
                    v_front := '-infinity';
                ELSE
                    SELECT (f ->> 1)::integer, (f ->> 2)::timestamptz INTO v_order, v_front
                    FROM jsonb_array_elements(p_fronts) f
                    WHERE f ->> 0 = v_tenant AND (f ->> 1)::integer > v_order
                    ORDER BY (f ->> 1)::integer LIMIT 1;
                    v_due := v_front;
                END IF;
                EXIT WHEN NOT FOUND;
                CONTINUE WHEN v_due > v_now;
                SELECT array_agg(due.job_id), array_agg(due.pending_shard) INTO v_got, v_shards
                FROM (
                    SELECT j.job_id, j.pending_shard FROM job_history j
                    WHERE j.queue = p_queue AND j.tenant_id = v_tenant AND j.state = 'PENDING'
                      AND j.claim_order = v_order AND j.run_at >= v_front AND j.run_at <= v_now
                      AND j.job_type <> ALL (v_paused) AND j.crash_count = 0
                    ORDER BY j.run_at, j.job_id LIMIT v_asked FOR UPDATE SKIP LOCKED
                ) due;
                IF v_got IS NOT NULL THEN
                    v_ids := v_ids || v_got;
                    v_freed := v_freed || v_shards;
                    v_left := v_left - cardinality(v_got);
                    v_asked := v_asked - cardinality(v_got);
                END IF;
                EXIT WHEN v_asked <= 0;
            END LOOP;
        END LOOP;
        EXIT WHEN v_left <= 0 OR p_fronts IS NOT NULL OR cardinality(v_tenants) < v_chunk;
    END LOOP;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    PERFORM release_pending(p_queue, v_freed);
    RETURN QUERY
        WITH claimed AS (
            UPDATE job_history j SET
                state = 'RUNNING', claim_token = gen_random_uuid(), claim_count = j.claim_count + 1,
                executor_id = p_executor, started_at = v_now, deadline_at = v_now + j.timeout,
                pending_shard = NULL, updated_at = v_now
            WHERE j.job_id = ANY (v_ids)
            RETURNING j.*
        )
        SELECT c.* FROM claimed c ORDER BY c.claim_order, c.run_at, c.job_id;
END
$$;
