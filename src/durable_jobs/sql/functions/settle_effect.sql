-- A person's word about an unknown effect: it happened, or it did not (it is then released). Returns the
-- effect as it stands, with 'settled', or why not: 'held' (an execution is at it), 'done' (it is confirmed).
CREATE OR REPLACE FUNCTION settle_effect(
    p_tenant text, p_id uuid, p_happened boolean, p_by text, p_now timestamptz
) RETURNS TABLE (
    answer text, id uuid, key text, effect_type text, state text, job_id uuid, root_job_id uuid,
    created_at timestamptz, confirmed_at timestamptz, result jsonb)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_effect job_effects;
    v_answer text := 'settled';
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    SELECT * INTO v_effect FROM job_effects e WHERE e.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF v_effect.state = 'CONFIRMED' THEN
        v_answer := 'done';
    ELSIF v_effect.state = 'RESERVED' AND EXISTS (
        SELECT FROM job_history j
        WHERE j.job_id = v_effect.job_id AND j.claim_token = v_effect.claim_token AND j.state = 'RUNNING'
    ) THEN
        v_answer := 'held';
    ELSE
        IF p_happened THEN
            UPDATE job_effects e SET state = 'CONFIRMED', confirmed_at = v_now
            WHERE e.id = p_id RETURNING * INTO v_effect;
        ELSE
            DELETE FROM job_effects e WHERE e.id = p_id;
        END IF;
        INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
        VALUES (p_tenant, 'jobs.effect.settled', v_effect.job_id, 'INFO',
                jsonb_build_object('effectType', v_effect.effect_type, 'effectId', p_id,
                                   'happened', p_happened, 'by', p_by), v_now);
    END IF;
    RETURN QUERY SELECT v_answer, v_effect.id, v_effect.key, v_effect.effect_type, v_effect.state,
        v_effect.job_id, v_effect.root_job_id, v_effect.created_at, v_effect.confirmed_at, v_effect.result;
END
$$;
