-- The end of an effect made in the caller's transaction: checks the fence once more and keeps it until
-- the transaction ends, so that a job which was given up leaves no effect. Answers as check_fence.
CREATE OR REPLACE FUNCTION keep_effect(
    p_tenant text, p_job uuid, p_token uuid, p_reservation uuid, p_id uuid, p_result jsonb, p_now timestamptz
) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    v_fence text;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    v_fence := check_fence(p_job, p_token, true, p_now);
    IF p_result IS NOT NULL THEN
        UPDATE job_effects e SET result = p_result WHERE e.id = p_id AND e.reservation = p_reservation;
    END IF;
    PERFORM set_tenants('{}');
    RETURN v_fence;
END
$$;
