"""Base data: what clients wrote and what is loaded of databases. Knows nothing of what is built on it."""
