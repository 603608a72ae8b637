-- A page of one tenant's failed jobs, those that failed last first, without the big columns. What was resubmitted
-- is not retryable any more.
SELECT job_id, tenant_id, job_type, queue, state, priority, run_at, payload_version, failed_reason,
       idempotency_key, correlation_id, submitted_by, retryable, retry_count, max_retries, parent_job_id,
       retry_child_id, root_job_id, replay_of, claim_count, crash_count, dispatch_count, executor_id,
       flow_run_id, task_run_id, deadline_at, cancel_requested_at, progress, created_at, started_at,
       completed_at, updated_at
FROM job_history j
WHERE tenant_id = %(tenant)s
  AND state = 'FAILED'
  AND (%(job_type)s::text IS NULL OR job_type = %(job_type)s)
  AND (%(since)s::timestamptz IS NULL OR completed_at >= %(since)s)
  AND (%(submitted_by)s::text IS NULL OR submitted_by = %(submitted_by)s)
  AND (%(retryable)s::boolean IS NULL
       OR %(retryable)s = (retryable AND NOT EXISTS (SELECT FROM job_history r WHERE r.replay_of = j.job_id)))
  AND (%(after_at)s::timestamptz IS NULL OR (completed_at, job_id) < (%(after_at)s, %(after_id)s::uuid))
ORDER BY completed_at DESC, job_id DESC
LIMIT %(limit)s
