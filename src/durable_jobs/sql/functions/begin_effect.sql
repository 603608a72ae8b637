-- Checks the fence of an execution, then takes the key of an effect for it: RESERVED before a call to
-- the outside, or CONFIRMED (p_recorded) when the effect is made in this very transaction.
-- Without a key it is the id of the first job that all retries and resubmissions come from.
-- Answers: 'lost', 'cancelled', 'overdue' as check_fence; 'taken': go on; 'done': the effect exists;
-- 'held': another execution is at it; 'unknown': one ended in between, and the effect may exist or
-- not: p_over names that one's reservation to take it over. p_patience bounds the wait for another
-- transaction that records the same effect ('held' without a row).
CREATE OR REPLACE FUNCTION begin_effect(
    p_tenant text, p_job uuid, p_token uuid, p_key text, p_type text, p_reservation uuid, p_over uuid,
    p_recorded boolean, p_patience interval, p_now timestamptz
) RETURNS TABLE (
    answer text, id uuid, key text, reservation uuid, job_id uuid, created_at timestamptz, result jsonb)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_state text := CASE WHEN p_recorded THEN 'CONFIRMED' ELSE 'RESERVED' END;
    v_fence text;
    v_root uuid;
    v_key text;
    v_found record;
    v_lock_timeout text := current_setting('lock_timeout');
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    -- A long transaction of the caller must not hold up those who decide about the job; it checks
    -- again before it ends.
    v_fence := check_fence(p_job, p_token, NOT p_recorded, p_now);
    IF v_fence <> 'held' THEN
        PERFORM set_tenants('{}');
        RETURN QUERY SELECT v_fence, NULL::uuid, p_key, NULL::uuid, p_job, v_now, NULL::jsonb;
        RETURN;
    END IF;
    SELECT coalesce(j.origin_job_id, j.root_job_id) INTO v_root FROM job_history j WHERE j.job_id = p_job;
    v_key := coalesce(p_key, v_root::text);
    PERFORM set_config(
        'lock_timeout', greatest(1, floor(extract(epoch FROM p_patience) * 1000))::bigint::text, true);
    BEGIN
        LOOP
            INSERT INTO job_effects AS e (
                tenant_id, key, effect_type, job_id, root_job_id, state, claim_token, reservation, created_at,
                confirmed_at)
            VALUES (
                p_tenant, v_key, p_type, p_job, v_root, v_state, p_token, p_reservation, v_now,
                CASE WHEN p_recorded THEN v_now END)
            ON CONFLICT (tenant_id, key, effect_type) DO NOTHING
            RETURNING e.*, 'taken' AS answer INTO v_found;
            EXIT WHEN FOUND;
            UPDATE job_effects e SET
                state = v_state, job_id = p_job, root_job_id = v_root, claim_token = p_token,
                reservation = p_reservation, confirmed_at = CASE WHEN p_recorded THEN v_now END
            WHERE e.tenant_id = p_tenant AND e.key = v_key AND e.effect_type = p_type
              AND e.reservation = p_over AND e.state <> 'CONFIRMED'
            RETURNING e.*, 'taken' AS answer INTO v_found;
            EXIT WHEN FOUND;
            -- One snapshot for both: who confirms does so before the job ends.
            SELECT e.*, CASE
                WHEN e.state = 'CONFIRMED' THEN 'done'
                WHEN e.state = 'RESERVED' AND e.reservation = p_reservation THEN 'taken'
                WHEN e.state = 'RESERVED' AND e.claim_token <> p_token AND EXISTS (
                    SELECT FROM job_history j
                    WHERE j.job_id = e.job_id AND j.claim_token = e.claim_token AND j.state = 'RUNNING'
                ) THEN 'held'
                ELSE 'unknown'
            END AS answer INTO v_found
            FROM job_effects e WHERE e.tenant_id = p_tenant AND e.key = v_key AND e.effect_type = p_type;
            -- Else it was released meanwhile.
            EXIT WHEN FOUND;
        END LOOP;
    EXCEPTION WHEN lock_not_available THEN
        SELECT 'held' AS answer, NULL::uuid AS id, v_key AS key, NULL::uuid AS reservation,
               NULL::uuid AS job_id, v_now AS created_at, NULL::jsonb AS result INTO v_found;
    END;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
    PERFORM set_tenants('{}');
    RETURN QUERY SELECT v_found.answer, v_found.id, v_found.key, v_found.reservation, v_found.job_id,
                        v_found.created_at, v_found.result;
END
$$;
