-- Records that an effect was made, whoever decides about the job meanwhile: the truth wins. True unless
-- the reservation was overtaken (the effect may then have been made twice, which is an event).
CREATE OR REPLACE FUNCTION confirm_effect(
    p_tenant text, p_key text, p_type text, p_job uuid, p_reservation uuid, p_result jsonb, p_now timestamptz
) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_before job_effects;
    v_id uuid;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT * INTO v_before FROM job_effects e
    WHERE e.tenant_id = p_tenant AND e.key = p_key AND e.effect_type = p_type FOR UPDATE;
    IF v_before.reservation = p_reservation THEN
        UPDATE job_effects e SET
            state = 'CONFIRMED', confirmed_at = coalesce(e.confirmed_at, v_now),
            result = coalesce(p_result, e.result)
        WHERE e.id = v_before.id;
        RETURN true;
    END IF;
    INSERT INTO job_effects AS e (
        tenant_id, key, effect_type, job_id, root_job_id, state, reservation, created_at, confirmed_at, result)
    VALUES (
        p_tenant, p_key, p_type, p_job,
        coalesce(
            (SELECT coalesce(j.origin_job_id, j.root_job_id) FROM job_history j WHERE j.job_id = p_job), p_job),
        'CONFIRMED', p_reservation, v_now, v_now, p_result)
    ON CONFLICT (tenant_id, key, effect_type) DO UPDATE SET
        state = 'CONFIRMED', job_id = excluded.job_id, root_job_id = excluded.root_job_id,
        claim_token = NULL, reservation = excluded.reservation,
        confirmed_at = coalesce(e.confirmed_at, excluded.confirmed_at),
        result = coalesce(excluded.result, e.result)
    RETURNING e.id INTO v_id;
    INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
    VALUES (p_tenant, 'jobs.effect.overtaken', p_job, 'WARNING',
            jsonb_build_object('effectType', p_type, 'effectId', v_id, 'otherJobId', v_before.job_id,
                               'otherState', v_before.state), v_now);
    RETURN false;
END
$$;
