"""Prefect block types: what people fill in once in the Prefect UI."""
