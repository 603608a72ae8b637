"""Figures for Prometheus over all tenants: aggregates only, at a cost that does not grow with history."""

from durable_jobs.metrics.endpoint import Exposition, Metrics

__all__ = ["Exposition", "Metrics"]
