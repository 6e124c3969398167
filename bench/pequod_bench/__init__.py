"""Workloads that measure Pequod, and models that compute what it must answer."""
