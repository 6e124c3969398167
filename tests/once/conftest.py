"""The PostgreSQL of the whole run."""

from tests.backing.conftest import dsn, postgres

__all__ = ["dsn", "postgres"]
