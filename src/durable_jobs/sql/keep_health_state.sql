INSERT INTO health_states (target, check_name, failing, announced, since, said_at, severity, changes)
VALUES (%(target)s, %(check_name)s, %(failing)s, %(announced)s, %(since)s, %(said_at)s, %(severity)s, %(changes)s)
ON CONFLICT (target, check_name) DO UPDATE SET
    failing = excluded.failing, announced = excluded.announced, since = excluded.since,
    said_at = excluded.said_at, severity = excluded.severity, changes = excluded.changes
