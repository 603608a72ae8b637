"""Dead letters: what failed and may be retried. They are retried by policy, or end as ABANDONED with an alert."""
