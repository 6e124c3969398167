"""Reads: what is missing is computed, what is stale brought up to date, and rows are handed out."""
