"""The HTTP API: submit, follow and operate jobs from any language. It never loads Prefect."""
