"""Clients of clusters: calls are routed by key over servers that a map names."""
