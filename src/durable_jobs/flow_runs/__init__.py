"""PREFECT_FLOW_RUN: runs of any Prefect deployment as jobs. What is known of Prefect here is plain data."""
