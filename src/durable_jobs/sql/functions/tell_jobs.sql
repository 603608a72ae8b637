-- Records one event for each job as its row is now, or, when there are more than p_each, one for all.
CREATE OR REPLACE FUNCTION tell_jobs(
    p_tenant text, p_event text, p_severity text, p_jobs uuid[], p_more jsonb[], p_by text, p_each integer,
    p_now timestamptz
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_jobs integer := coalesce(cardinality(p_jobs), 0);
BEGIN
    IF v_jobs <= p_each THEN
        INSERT INTO job_events (tenant_id, event, job_id, severity, payload, occurred_at)
        SELECT p_tenant, p_event, j.job_id, p_severity,
               event_payload(j) || coalesce(p_more[t.n], '{}') || jsonb_build_object('by', p_by), p_now
        FROM unnest(p_jobs) WITH ORDINALITY AS t (job_id, n) JOIN job_history j ON j.job_id = t.job_id;
        RETURN;
    END IF;
    INSERT INTO job_events (tenant_id, event, severity, payload, occurred_at)
    SELECT p_tenant, p_event, p_severity, jsonb_build_object(
               'jobs', v_jobs, 'by', p_by,
               'jobTypes', (SELECT jsonb_object_agg(t.job_type, t.jobs) FROM (
                   SELECT j.job_type, count(*) AS jobs FROM job_history j WHERE j.job_id = ANY (p_jobs)
                   GROUP BY j.job_type) t),
               'firstJobIds', to_jsonb(p_jobs[:100])), p_now;
END
$$;
