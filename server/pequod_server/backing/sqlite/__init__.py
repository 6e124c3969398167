"""A file of SQLite behind the cache."""

from pequod_server.backing.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
