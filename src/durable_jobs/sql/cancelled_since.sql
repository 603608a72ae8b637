-- How many of one tenant's jobs were cancelled since a moment.
SELECT count(*) FROM job_history
WHERE tenant_id = %(tenant)s AND state = 'CANCELLED' AND completed_at >= %(since)s
