-- How the purges of the past went. The newest run without an end may be under way; an older one was killed.
WITH runs AS (
    SELECT r.*, r.finished_at IS NULL AND r.started_at = max(r.started_at) OVER () AS under_way FROM purge_runs r
), success AS (
    SELECT max(started_at) AS started_at, max(finished_at) AS at FROM runs WHERE outcome = 'succeeded'
)
SELECT s.at,
       (SELECT max(r.started_at) FROM runs r),
       (SELECT count(*) FROM runs r
        WHERE NOT r.under_way AND r.outcome IS DISTINCT FROM 'succeeded'
          AND r.started_at > coalesce(s.started_at, '-infinity'))::integer,
       (SELECT coalesce(r.fault, 'the run was killed') FROM runs r
        WHERE NOT r.under_way AND r.outcome IS DISTINCT FROM 'succeeded'
          AND r.started_at > coalesce(s.started_at, '-infinity')
        ORDER BY r.started_at DESC LIMIT 1)
FROM success s
