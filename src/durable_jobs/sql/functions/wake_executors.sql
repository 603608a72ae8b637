-- Wakes the executors, but only when one has said that it sleeps: a notification takes a lock
-- that every commit in the database shares.
CREATE OR REPLACE FUNCTION wake_executors(p_queue text) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_notify('durable_jobs', p_queue)
    WHERE EXISTS (SELECT FROM job_executors WHERE idle AND NOT draining);
$$;
