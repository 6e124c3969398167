"""Joins: compiled, installed, and what is materialised of them."""
