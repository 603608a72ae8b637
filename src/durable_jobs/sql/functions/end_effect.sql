-- Ends a reservation without a confirmation: released when the effect is known not to have been made,
-- else unknown. With p_stopped a person has to settle it, which is an event.
CREATE OR REPLACE FUNCTION end_effect(
    p_tenant text, p_id uuid, p_reservation uuid, p_job uuid, p_released boolean, p_stopped boolean,
    p_now timestamptz
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_effect job_effects;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    IF p_released THEN
        DELETE FROM job_effects e
        WHERE e.id = p_id AND e.reservation = p_reservation AND e.state = 'RESERVED';
        RETURN;
    END IF;
    UPDATE job_effects e SET state = 'UNKNOWN'
    WHERE e.id = p_id AND e.reservation = p_reservation AND e.state <> 'CONFIRMED'
    RETURNING * INTO v_effect;
    IF p_stopped AND FOUND THEN
        INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
        VALUES (p_tenant, 'jobs.effect.unknown', p_job, 'CRITICAL',
                jsonb_build_object('effectType', v_effect.effect_type, 'effectId', p_id,
                                   'triedBy', v_effect.job_id, 'since', v_effect.created_at),
                coalesce(p_now, now()));
    END IF;
END
$$;
