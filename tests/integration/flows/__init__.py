"""Flows in this process, on a real Prefect server and a real Postgres."""
