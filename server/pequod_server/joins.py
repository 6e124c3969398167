"""The joins that the configuration lists."""

from __future__ import annotations

from collections.abc import Iterator

from pequod_grammar import parse

from pequod.engine import Engine, Join, JoinError
from pequod_server.config import ServerConfig
from pequod_server.settings import ConfigError


def install_joins(engine: Engine, config: ServerConfig, *, joins_from: str = "joins") -> list[Join]:
    """Install the joins of the files in their order, then those of the text; return them.

    Args:
        joins_from: Where the text of ``joins`` stands, for messages.

    Raises:
        ConfigError: A file cannot be read, or a join cannot be installed; the text says which and where.
    """
    joins = []
    for origin, text in _texts(config, joins_from):
        try:
            joins += engine.add_joins(parse(text))
        except JoinError as error:
            raise ConfigError(f"{origin}: {error.with_text(text)}") from error
    return joins


def _texts(config: ServerConfig, joins_from: str) -> Iterator[tuple[str, str]]:
    for file in config.join_files:
        try:
            text = file.read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file}: is not UTF-8: {error}") from error
        yield str(file), text
    if config.joins.strip():
        yield joins_from, config.joins
