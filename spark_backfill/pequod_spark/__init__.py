"""Spark beside Pequod: the home of the connector, the backfill and the workload generators."""
