"""Pequod: an ordered key-value cache that keeps computed data fresh by itself."""

__version__ = "0.1.0"
