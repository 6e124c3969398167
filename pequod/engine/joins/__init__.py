"""Joins: compiled, installed, and their materialised rows."""
