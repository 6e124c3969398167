"""The systems that are measured: Pequod, Redis, memcached, PostgreSQL, and their processes."""
