"""Databases that views live in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pequod_installed.names import how_to_install

from pequod_views.errors import TargetUnfitError, ViewFileError
from pequod_views.targets.sqlite import SqliteTarget
from pequod_views.targets.target import Missing, PartNews, RowChange, Target, TargetDialect, TargetTransaction

__all__ = ["Missing", "PartNews", "RowChange", "Target", "TargetDialect", "TargetTransaction", "open_target"]

_POSTGRES: Final = ("postgresql://", "postgres://")
_MARIADB: Final = "mariadb://"
_KAFKA: Final = "kafka://"


def open_target(database: str, *, missing: Missing = "made") -> Target:
    """Return a database by its name; it is connected to when it is first used.

    Args:
        database: sqlite:PATH, postgresql://USER:PASSWORD@HOST/NAME, mariadb://USER:PASSWORD@HOST/NAME or kafka://HOST:PORT.
        missing: Whether a file that is not there is made. A database of a server never is.

    Raises:
        ViewFileError: It is none of them.
        TargetUnfitError: The package for PostgreSQL, MariaDB or Kafka is not installed.
    """
    if database.startswith("sqlite:") and len(database) > len("sqlite:"):
        return SqliteTarget(Path(database.removeprefix("sqlite:")), missing)
    if database.startswith(_MARIADB):
        try:
            from pequod_views.targets.mariadb import MariadbTarget  # noqa: PLC0415 - others do without PyMySQL
        except ImportError as error:
            raise TargetUnfitError("MariaDB", f"it needs {error.name}: {how_to_install('mariadb')}") from error
        return MariadbTarget(database)
    if database.startswith(_KAFKA):
        try:
            from pequod_views.targets.kafka import KafkaTarget  # noqa: PLC0415 - others do without aiokafka
        except ImportError as error:
            raise TargetUnfitError("Kafka", f"it needs {error.name}: {how_to_install('kafka')}") from error
        return KafkaTarget(database)
    if not database.startswith(_POSTGRES):
        # It may have a password.
        kind = database.partition(":")[0]
        raise ViewFileError(
            "database", f"{kind!r} is no kind of one; write sqlite:PATH, postgresql://..., mariadb://... or kafka://..."
        )
    try:
        from pequod_views.targets.postgres import PostgresTarget  # noqa: PLC0415 - SQLite does without asyncpg
    except ImportError as error:
        raise TargetUnfitError("PostgreSQL", f"it needs {error.name}: {how_to_install('views')}") from error
    return PostgresTarget(database)
