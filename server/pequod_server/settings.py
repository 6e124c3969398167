r"""From the sources of settings to a `ServerConfig`: defaults, then the file, then PEQUOD_* variables, then flags.

    pequod.toml   rows_max = 100  \
    PEQUOD_ROWS_MAX=200            }  each checked by itself, the later one wins  ->  Settings(config, origins)
    --rows-max 300                /

Every source is checked as a whole, so that all that is wrong is said at once, each with its place.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from pequod.engine import PequodError
from pequod_server.config import ServerConfig, takes_path

DEFAULT: Final = "default"
#: Variables of the commands that look like settings.
_OF_CLIENTS: Final = frozenset({"PEQUOD_CERTIFICATE", "PEQUOD_KEY", "PEQUOD_CA"})


class ConfigError(PequodError):
    """Settings, or joins among them, that a server cannot start with."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        #: One text for each thing that is wrong, with its place.
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that hold, and where each comes from."""

    config: ServerConfig
    #: Name of the setting -> "default", the file's name, the variable or the flag.
    origins: Mapping[str, str]

    def place(self, name: str) -> str:
        """Return what to call the place of a setting in a message."""
        origin = self.origins[name]
        return origin if origin in (variable(name), flag(name)) else f"{origin}: {name}"


@dataclass(frozen=True, slots=True)
class _Source:
    values: Mapping[str, Any]
    #: From the name of a setting to where its value stands, for `Settings.origins` and for messages.
    origin: Callable[[str], str]
    place: Callable[[str], str]


class _Variables(ServerConfig, BaseSettings):
    # An empty variable is one that is not set; unknown ones are none of ours: container platforms make some.
    # Nothing is checked by this class, so pydantic need not build what checks.
    model_config = SettingsConfigDict(
        env_prefix="PEQUOD_", env_ignore_empty=True, enable_decoding=False, defer_build=True
    )


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"PEQUOD_{name.upper()}"


def flag(name: str) -> str:
    """Return the flag of a setting."""
    return f"--{name.replace('_', '-')}"


def misspelt_variables() -> dict[str, str]:
    """Return variables that are no settings but look like one, each with the one that may be meant."""
    names = {variable(name) for name in ServerConfig.model_fields}
    others = [name for name in os.environ if name.startswith("PEQUOD_") and name not in names | _OF_CLIENTS]
    return {name: close[0] for name in sorted(others) if (close := get_close_matches(name, names, n=1, cutoff=0.85))}


def load(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Read the file, the environment and the flags.

    Relative paths in the file are meant from the file's folder.

    Raises:
        ConfigError: The file cannot be read, a name is unknown, or a value is not what it should be.
    """
    sources = [
        _Source(EnvSettingsSource(_Variables)(), variable, variable),
        _Source(flags or {}, flag, flag),
    ]
    if file is not None:
        sources.insert(0, _Source(_from_file(file), lambda _: str(file), lambda name: f"{file}: {name}"))
    problems = [problem for source in sources for problem in _problems(source)]
    if problems:
        raise ConfigError(*problems)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(ServerConfig.model_fields, DEFAULT)
    for source in sources:
        values.update(source.values)
        origins.update((name, source.origin(name)) for name in source.values)
    try:
        config = ServerConfig(**values)
    except ValidationError as error:
        raise ConfigError(*map(reason_of, error.errors())) from None
    return Settings(config, origins)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from error
    for name in values.keys() & ServerConfig.model_fields.keys():
        if takes_path(name):
            values[name] = _from_folder(values[name], file.parent)
    return values


def _from_folder(value: object, folder: Path) -> object:
    match value:
        case str() if value:
            return str(folder / value)
        case list():
            return [_from_folder(part, folder) for part in value]
        case _:
            return value


def _problems(source: _Source) -> list[str]:
    try:
        ServerConfig(**source.values)
    except ValidationError as error:
        # An error of several settings has no place, and another source may make it good.
        return [_problem(source, detail) for detail in error.errors() if detail["loc"]]
    return []


def reason_of(detail: ErrorDetails) -> str:
    """Return what is wrong with a value, as settings say it."""
    return detail["msg"].replace("Input should be", "must be", 1).replace("Input is", "is", 1)


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return that there is nothing of a name, and the known name that may be meant.

    >>> unknown_name("setting", "row_max", ["rows_max", "listen"])
    'no such setting; did you mean rows_max?'
    """
    close = get_close_matches(name, known, n=1)
    return f"no such {what}" + (f"; did you mean {close[0]}?" if close else "")


def _problem(source: _Source, detail: ErrorDetails) -> str:
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        return f"{source.place(name)}: {unknown_name('setting', name, ServerConfig.model_fields)}"
    return f"{source.place(name)} = {detail['input']!r}: {reason_of(detail)}"
