"""PostgreSQL behind the cache. It needs the extra `backing`."""

from pequod_server.backing.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
