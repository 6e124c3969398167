"""The PostgreSQL before which the tutorials run."""

from tests.backing.conftest import dsn, postgres

__all__ = ["dsn", "postgres"]
