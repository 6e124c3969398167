"""Workloads that measure Pequod, and the models that tell whether what it answered is right."""
