-- How many events Prefect is not known to have, over all tenants, and since when the oldest waits.
CREATE OR REPLACE FUNCTION count_events() RETURNS TABLE (waiting bigint, posted bigint, oldest_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public
AS $$
    SELECT count(*) FILTER (WHERE e.posted_at IS NULL), count(e.posted_at), min(e.occurred_at)
    FROM public.job_events e WHERE e.published_at IS NULL;
$$;
