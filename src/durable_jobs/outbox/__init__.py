"""From the table `job_events` to Prefect: what happened reaches people, late if need be."""
