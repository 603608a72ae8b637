-- Ends a purge and says so in the same transaction: `jobs.purge.completed` when nothing was wrong,
-- `jobs.retention.violated` when something went too early or the run before had not succeeded either.
-- Returns the event recorded, if any.
CREATE OR REPLACE FUNCTION finish_purge(p_run uuid, p_fault text, p_early boolean, p_payload jsonb, p_now timestamptz)
RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, now());
    v_run purge_runs;
    v_before text;
    v_event text;
BEGIN
    PERFORM set_tenants('{}');
    UPDATE purge_runs r SET finished_at = v_now, outcome = CASE WHEN p_fault IS NULL THEN 'succeeded' ELSE 'failed' END,
        fault = p_fault
    WHERE r.run_id = p_run AND r.finished_at IS NULL RETURNING * INTO v_run;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- One that was killed has no outcome, which is none to be content with.
    SELECT coalesce(r.outcome, 'killed') INTO v_before FROM purge_runs r
    WHERE r.started_at < v_run.started_at ORDER BY r.started_at DESC LIMIT 1;
    IF p_fault IS NULL THEN
        v_event := 'jobs.purge.completed';
    ELSIF p_early OR v_before <> 'succeeded' THEN
        v_event := 'jobs.retention.violated';
    ELSE
        RETURN NULL;
    END IF;
    INSERT INTO job_events (event, severity, payload, occurred_at)
    VALUES (v_event, CASE WHEN p_fault IS NULL THEN 'INFO' ELSE 'CRITICAL' END,
            p_payload || jsonb_strip_nulls(jsonb_build_object(
                'runId', v_run.run_id, 'jobs', v_run.jobs, 'events', v_run.events, 'effects', v_run.effects,
                'bytes', v_run.bytes, 'fault', left(p_fault, 2000))), v_now);
    RETURN v_event;
END
$$;
