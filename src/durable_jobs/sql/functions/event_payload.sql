-- What an event tells of a job: never its payload.
CREATE OR REPLACE FUNCTION event_payload(p_job job_history) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'jobType', p_job.job_type, 'queue', p_job.queue, 'state', p_job.state,
        'reason', left(p_job.failed_reason, 500), 'retryable', p_job.retryable,
        'retryCount', p_job.retry_count, 'maxRetries', p_job.max_retries,
        'correlationId', p_job.correlation_id, 'rootJobId', p_job.root_job_id);
$$;
