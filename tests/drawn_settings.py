"""Settings at random for the servers of a run of tests: those that change no answer, from a seed.

    PEQUOD_SETTINGS_SEED=any make test      draws a seed, which the header of pytest names
    PEQUOD_SETTINGS_SEED=commit make test   takes it from the hash of the commit: the same at every run of it
    PEQUOD_SETTINGS_SEED=7 make test        repeats it

A run that fails says how to repeat it. A server has these settings unless its test gives others; a test of the
defaults, or of where settings come from, asks for the fixture `default_settings`. Without the variable all servers have
the defaults, as in CI.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

VARIABLE: Final = "PEQUOD_SETTINGS_SEED"
_SEEDS: Final = 1_000_000
#: What is drawn of each setting: legal values, small ones among them, with which every answer is the same. With more
#: than `rows_max` rows a scan has several moments, and one in a transaction is refused: the tests scan some hundreds.
#: With more for messages than a test's `memory_limit`, 256 MiB, clients that do not read take the process beyond it.
_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "rows_max": (1000, 4000, 8192),
    "messages_bytes_max": (0, 64 << 20),
    "memory_limit": ("75%", "none", "4GiB"),
    "request_ids_keep_s": (60.0, 600.0, 6000.0),
    "keepalive_s": (0.0, 5.0, 60.0),
    "watch_linger_s": (10.0, 60.0, 600.0),
    "backfill_lease_s": (30.0, 60.0, 600.0),
    "peer_keep_bytes": (1 << 20, 64 << 20),
    "slow_ms": (0, 1, 100),
    "uvloop": (True, False),
}
#: Pequod's own defaults of what was drawn.
_OWN: Final[dict[str, Any]] = {}


def seed_of_the_run() -> int | None:
    """Return the seed; None: settings are the defaults. A drawn one is in the environment from then on.

    Raises:
        ValueError: The variable says something else than a number, `any` or `commit`.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    if given == "any":
        given = str(SystemRandom().randrange(_SEEDS))
    elif given == "commit":
        given = str(seed_of_a_commit(_commit()))
    elif not given.isdecimal():
        raise ValueError(f"{VARIABLE} is {given!r}: give it a number, any or commit")
    os.environ[VARIABLE] = given
    return int(given)


def seed_of_a_commit(commit: str) -> int:
    """Return the seed of a commit, by its hash."""
    return int(commit, 16) % _SEEDS


def _commit() -> str:
    """Return the hash of the commit that is checked out."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()


def drawn(seed: int) -> dict[str, Any]:
    """Return the settings of a seed. Each has a draw of its own: another value of one leaves the others as they are."""
    return {name: Random(f"{seed} {name}").choice(values) for name, values in _VALUES.items()}


def use(settings: Mapping[str, Any]) -> None:
    """Make settings the defaults of the servers of this process, and of those that it starts."""
    from pequod_server.settings import variable

    os.environ.update({variable(name): str(value) for name, value in settings.items()})
    _make_defaults(settings)


@contextmanager
def set_aside() -> Iterator[None]:
    """Give the servers of this process, and those that it starts, Pequod's own defaults for a while."""
    from pequod_server import ServerConfig
    from pequod_server.settings import variable

    drawn = {name: ServerConfig.model_fields[name].default for name in _OWN}
    variables = {name: os.environ.pop(name) for name in map(variable, drawn) if name in os.environ}
    _make_defaults(dict(_OWN))
    try:
        yield
    finally:
        _make_defaults(drawn)
        os.environ.update(variables)


def _make_defaults(settings: Mapping[str, Any]) -> None:
    from pequod_server import ServerConfig

    for name, value in settings.items():
        field = ServerConfig.model_fields[name]
        _OWN.setdefault(name, field.default)
        field.default = value
    ServerConfig.model_rebuild(force=True)
