-- Records that a purge begins. The record of purges itself keeps a year.
WITH forgotten AS (
    DELETE FROM purge_runs WHERE started_at < now() - interval '1 year'
)
INSERT INTO purge_runs (run_id, jobs_before, effects_before)
VALUES (%(run)s, %(jobs_before)s, %(effects_before)s)
