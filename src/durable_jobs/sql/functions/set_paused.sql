-- Holds a queue or a job type back or lets it go on, and tells of it; false when it is so already.
CREATE OR REPLACE FUNCTION set_paused(p_kind text, p_name text, p_by text, p_paused boolean) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    IF p_paused THEN
        INSERT INTO paused (kind, name, by) VALUES (p_kind, p_name, p_by) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM paused p WHERE p.kind = p_kind AND p.name = p_name;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO job_events (event, severity, payload)
    VALUES (CASE WHEN p_paused THEN 'jobs.queue.paused' ELSE 'jobs.queue.resumed' END, 'INFO', jsonb_build_object(
        'kind', p_kind, CASE p_kind WHEN 'queue' THEN 'queue' ELSE 'jobType' END, p_name, 'by', p_by));
    RETURN true;
END
$$;
