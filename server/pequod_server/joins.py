"""The joins that the configuration lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pequod_grammar import parse

from pequod.engine import Engine, JoinError, JoinInfo, JoinSpec, LimitExceededError
from pequod_server.config import ServerConfig
from pequod_server.settings import ConfigError


class JoinLimits:
    """The bounds of the joins of clients; joins of the configuration are not bounded."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config

    def refuse_text(self, text: str) -> None:
        """Refuse a text that takes too long to parse, before it is parsed.

        Raises:
            LimitExceededError: It is too long, or has too many joins or slots.
        """
        config = self._config
        self._refuse("join_text_bytes_max", len(text.encode()), config.join_text_bytes_max)
        self._refuse("joins_max", len([part for part in text.split(";") if part.strip()]), config.joins_max)
        self._refuse("join_slots_max", text.count("<"), config.join_slots_max)

    def refuse_joins(self, engine: Engine, specs: Sequence[JoinSpec]) -> None:
        """Pass if the joins may be installed beside those that are; a join that is installed already counts once.

        Raises:
            LimitExceededError: There would be more than ``joins_max``.
        """
        installed = {join.spec for join in engine.joins()}
        if fresh := set(specs) - installed:
            self._refuse("joins_max", len(installed) + len(fresh), self._config.joins_max)

    @staticmethod
    def _refuse(setting: str, size: int, maximum: int) -> None:
        if size > maximum:
            raise LimitExceededError(setting, size, maximum)


def install_joins(engine: Engine, config: ServerConfig, *, joins_from: str = "joins") -> list[JoinInfo]:
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


def joins_of_settings(config: ServerConfig) -> set[JoinSpec]:
    """Return the joins that the settings install at each start.

    Raises:
        ConfigError: A file cannot be read any more.
    """
    return {spec for _, text in _texts(config, "joins") for spec in parse(text)}


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
