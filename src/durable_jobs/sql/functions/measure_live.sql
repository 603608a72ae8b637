-- Figures over all tenants for monitoring, of what is live: counts and ages (s), nothing of any job or
-- tenant. It reads partial indexes of live states and dead letters only, so history costs nothing.
-- A queue or a type that is not among the given names, which the code declares, is called '(undeclared)'.
CREATE OR REPLACE FUNCTION measure_live(
    p_queues text[], p_types text[], p_stale interval, p_now timestamptz
) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public
-- Everything is looked up by index: statistics lag behind when thousands of jobs come or go.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
    WITH moment AS MATERIALIZED (SELECT coalesce(p_now, now()) AS at),
    silent AS MATERIALIZED (
        SELECT e.executor_id, e.idle, e.draining, e.last_seen_at < m.at - p_stale AS silent
        FROM public.job_executors e, moment m
    ), pending AS (
        SELECT CASE WHEN j.queue = ANY (p_queues) THEN j.queue ELSE '(undeclared)' END AS queue,
               count(*) AS jobs, count(*) FILTER (WHERE j.run_at > m.at) AS delayed,
               min(j.run_at) FILTER (WHERE j.run_at <= m.at) AS oldest
        FROM public.job_history j, moment m WHERE j.state = 'PENDING' GROUP BY 1
    ), running AS (
        SELECT CASE WHEN j.queue = ANY (p_queues) THEN j.queue ELSE '(undeclared)' END AS queue,
               count(*) AS jobs,
               count(*) FILTER (
                   WHERE j.deadline_at < m.at
                      OR NOT EXISTS (SELECT FROM silent s WHERE s.executor_id = j.executor_id AND NOT s.silent)
               ) AS stalled
        FROM public.job_history j, moment m WHERE j.state = 'RUNNING' GROUP BY 1
    ), letters AS (
        SELECT CASE WHEN j.queue = ANY (p_queues) THEN j.queue ELSE '(undeclared)' END AS queue,
               CASE WHEN j.job_type = ANY (p_types) THEN j.job_type ELSE '(undeclared)' END AS job_type,
               count(*) AS jobs, min(j.completed_at) AS oldest
        FROM public.job_history j
        WHERE j.state = 'FAILED' AND j.retryable
          -- What was resubmitted has been seen to.
          AND NOT EXISTS (SELECT FROM public.job_history r WHERE r.replay_of = j.job_id)
        GROUP BY 1, 2
    )
    SELECT jsonb_build_object(
        'pending', (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'queue', p.queue, 'jobs', p.jobs, 'delayed', p.delayed,
            'oldest_s', coalesce(extract(epoch FROM m.at - p.oldest), 0))), '[]') FROM pending p),
        'running', (SELECT coalesce(jsonb_agg(to_jsonb(r)), '[]') FROM running r),
        'letters', (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'queue', l.queue, 'job_type', l.job_type, 'jobs', l.jobs,
            'oldest_s', greatest(extract(epoch FROM m.at - l.oldest), 0))), '[]') FROM letters l),
        'executors', (SELECT jsonb_build_object(
            'silent', count(*) FILTER (WHERE s.silent),
            'draining', count(*) FILTER (WHERE NOT s.silent AND s.draining),
            'idle', count(*) FILTER (WHERE NOT s.silent AND NOT s.draining AND s.idle),
            'working', count(*) FILTER (WHERE NOT s.silent AND NOT s.draining AND NOT s.idle)) FROM silent s),
        'paused', (SELECT coalesce(jsonb_agg(jsonb_build_object('kind', p.kind, 'name', p.name)), '[]')
                   FROM public.paused p WHERE p.name = ANY (CASE p.kind WHEN 'queue' THEN p_queues ELSE p_types END)),
        'outbox', (SELECT jsonb_build_object(
            'waiting', e.waiting, 'posted', e.posted,
            'oldest_s', coalesce(greatest(extract(epoch FROM m.at - e.oldest_at), 0), 0)) FROM public.count_events() e),
        'at', extract(epoch FROM m.at))
    FROM moment m;
$$;
