"""Durable jobs for people who already run Prefect and Postgres."""
