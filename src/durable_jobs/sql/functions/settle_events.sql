-- Writes down which posted events Prefect has, and which it lost: those are to be posted again,
-- unless somebody else did so since (the posting judged is named by its time).
CREATE OR REPLACE FUNCTION settle_events(
    p_stored uuid[], p_lost uuid[], p_lost_posted timestamptz[], p_now timestamptz
) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_tenants(array(SELECT list_tenants('unpublished')));
    UPDATE job_events e SET published_at = coalesce(p_now, clock_timestamp())
    WHERE e.event_id = ANY (p_stored) AND e.published_at IS NULL;
    UPDATE job_events e SET posted_at = NULL
    FROM unnest(p_lost, p_lost_posted) AS l (event_id, posted_at)
    WHERE e.event_id = l.event_id AND e.posted_at = l.posted_at AND e.published_at IS NULL;
END
$$;
