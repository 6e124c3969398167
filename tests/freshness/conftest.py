"""The PostgreSQL of the whole run."""

from tests.backing.conftest import postgres

__all__ = ["postgres"]
