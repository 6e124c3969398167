"""Durable views: what they cost a server, and the rows that managers write."""
