"""Spark beside Pequod: cache joins compiled to DataFrames, for what is too large to compute in one process.

docs/architecture/spark.md has its files and the way of a backfilled row through them. Nothing here is imported by the
server or the clients.
"""
