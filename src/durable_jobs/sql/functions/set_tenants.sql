-- Names the tenants of this transaction, for the policies of every tenant table.
CREATE OR REPLACE FUNCTION set_tenants(p_tenants text[]) RETURNS void
LANGUAGE sql AS $$
    SELECT set_config('durable_jobs.tenant_ids', coalesce(p_tenants, '{}')::text, true);
$$;
