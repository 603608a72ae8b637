-- Takes up to p_wanted submissions from what a tenant may make in any minute; returns how many it got, and
-- after how many seconds at least one more is free. The last minute is counted by the second, in a ring: a
-- second counts until it lies wholly outside of the minute, so the limit is never exceeded, and may refuse up
-- to a second early.
CREATE OR REPLACE FUNCTION take_rate(p_tenant text, p_limit integer, p_wanted integer, p_now timestamptz)
RETURNS TABLE (granted integer, wait_s double precision)
LANGUAGE plpgsql
AS $$
DECLARE
    v_row rate_counts;
    v_epoch double precision;
    v_second bigint;
    v_used integer := 0;
    v_freed integer := 0;
BEGIN
    PERFORM set_tenants(ARRAY[p_tenant]);
    LOOP
        SELECT * INTO v_row FROM rate_counts r WHERE r.tenant_id = p_tenant FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO rate_counts VALUES (p_tenant, 0, array_fill(0, ARRAY[61])) ON CONFLICT DO NOTHING;
    END LOOP;
    -- Behind the lock, so that no call counts in a second before the last one's.
    v_epoch := extract(epoch FROM coalesce(p_now, clock_timestamp()));
    v_second := greatest(floor(v_epoch)::bigint, v_row.newest);
    FOR i IN greatest(v_row.newest + 1, v_second - 60) .. v_second LOOP
        v_row.counts[i % 61 + 1] := 0;
    END LOOP;
    SELECT coalesce(sum(c), 0) INTO v_used FROM unnest(v_row.counts) AS c;
    granted := greatest(0, least(p_wanted, p_limit - v_used));
    v_row.counts[v_second % 61 + 1] := v_row.counts[v_second % 61 + 1] + granted;
    UPDATE rate_counts r SET newest = v_second, counts = v_row.counts WHERE r.tenant_id = p_tenant;
    wait_s := 0;
    v_used := v_used + granted;
    FOR i IN v_second - 60 .. v_second LOOP
        EXIT WHEN v_used - v_freed < p_limit;
        v_freed := v_freed + v_row.counts[i % 61 + 1];
        wait_s := i + 61 - v_epoch;
    END LOOP;
    PERFORM set_tenants('{}');
    RETURN NEXT;
END
$$;
