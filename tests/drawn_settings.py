"""Settings at random for the servers of a run of tests: those that change no answer, from a seed.

    make test                               the seed of the commit, one of SEEDS, in the folders of FOLDERS
    PEQUOD_SETTINGS_SEED=7 make test        this seed, in all folders; also of a pytest by hand
    PEQUOD_SETTINGS_SEED=any make test      a seed that nobody has tried, which the header of pytest names
    PEQUOD_SETTINGS_SEED=commit make test   the seed of the commit, in all folders
    PEQUOD_SETTINGS_SEED=none make test     all servers have the defaults, as in a pytest by hand

Each test that fails says how to repeat it. A server has these settings unless its test gives others; a test of the
defaults, or of where settings come from, asks for the fixture `default_settings`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

VARIABLE: Final = "PEQUOD_SETTINGS_SEED"
_ALL_SEEDS: Final = 1_000_000
#: The seeds of `make test`: few, so that each could be run over all of FOLDERS before it decides a landing. Together
#: they draw every value of every setting.
SEEDS: Final = (0, 6, 167)
#: The folders whose tests have passed under each of SEEDS, with what `make test` runs of them. Those that measure are
#: not to be here. A change of SEEDS or of _VALUES asks for all of it anew, and another folder for all of SEEDS.
FOLDERS: Final = (
    "tests/backing",
    "tests/client",
    "tests/cluster",
    "tests/cluster_client",
    "tests/conformance",
    "tests/console",
    "tests/disk",
    "tests/freshness",
    "tests/gateway",
    "tests/groups",
    "tests/once",
    "tests/peer",
    "tests/server",
    "tests/views",
    "tests/wire",
    "tests/workers",
)
#: What is drawn of each setting: legal values, small ones among them, with which every answer is the same. With more
#: than `rows_max` rows a scan has several moments, and one in a transaction is refused: the tests scan some hundreds.
#: A busy machine may take ten seconds to go on with a watch, so 30 s is the least that it is kept.
#: More for messages than a test's `memory_limit`, 256 MiB, has room for is refused.
_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "rows_max": (1000, 4000, 8192),
    "messages_bytes_max": (0, 64 << 20),
    "memory_limit": ("75%", "none", "4GiB"),
    "request_ids_keep_s": (60.0, 600.0, 6000.0),
    "keepalive_s": (0.0, 5.0, 60.0),
    "watch_linger_s": (30.0, 60.0, 600.0),
    "backfill_lease_s": (30.0, 60.0, 600.0),
    "peer_keep_bytes": (1 << 20, 64 << 20),
    "slow_ms": (0, 1, 100),
    "uvloop": (True, False),
}
#: Pequod's own defaults of what was drawn.
_OWN: Final[dict[str, Any]] = {}


@dataclass
class Draw:
    """What a run of tests draws.

    Args:
        seed: Of the settings; None: nothing is drawn.
        is_everywhere: Whether all tests have the settings; else those of FOLDERS.
    """

    seed: int | None
    is_everywhere: bool = False
    _is_on: bool = field(default=False, init=False)

    def is_of(self, test: str) -> bool:
        """Return whether the servers of a test, named by its id or its file, have drawn settings."""
        return self.seed is not None and (self.is_everywhere or test.startswith(tuple(f"{name}/" for name in FOLDERS)))

    def turn_to(self, test: str) -> None:
        """Give the servers that are made from now on the settings that those of a test have."""
        if self.seed is None or self._is_on is (is_on := self.is_of(test)):
            return
        self._is_on = is_on
        use(drawn(self.seed)) if is_on else _use_own()

    def told(self) -> str:
        """Return the variable and the settings, as text."""
        assert self.seed is not None
        settings = ", ".join(f"{name} {value}" for name, value in drawn(self.seed).items())
        where = "" if self.is_everywhere else f", in {len(FOLDERS)} folders"
        return f"{VARIABLE}={self.seed}{where}: {settings}"

    def repeated(self, test: str) -> str:
        """Return the command that repeats a test, by its id."""
        return f"{VARIABLE}={self.seed} .venv/bin/pytest '{test}'"


def draw_of_the_run(*, is_suite: bool) -> Draw:
    """Return what is drawn. A seed that nobody has named is in the environment from then on.

    Args:
        is_suite: Whether the run is one of `make test`, which draws unless the variable says `none`.

    Raises:
        ValueError: The variable says something else than a number, `any`, `commit` or `none`.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        return Draw(_seed_of_the_commit()) if is_suite else Draw(None)
    if given == "none":
        return Draw(None)
    if given == "any":
        given = str(SystemRandom().randrange(_ALL_SEEDS))
    elif given == "commit":
        given = str(_seed_of_the_commit())
    elif not given.isdecimal():
        raise ValueError(f"{VARIABLE} is {given!r}: give it a number, any, commit or none")
    os.environ[VARIABLE] = given
    return Draw(int(given), is_everywhere=True)


def seed_of_a_commit(commit: str) -> int:
    """Return the seed of a commit, by its hash: the same at every run of it."""
    return SEEDS[int(commit, 16) % len(SEEDS)]


def _seed_of_the_commit() -> int:
    try:
        return seed_of_a_commit(_commit())
    except (OSError, subprocess.CalledProcessError):
        # Of a copy without its history: one for each day.
        return SEEDS[datetime.now(UTC).toordinal() % len(SEEDS)]


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


def _use_own() -> None:
    """Give servers Pequod's own defaults again."""
    from pequod_server.settings import variable

    for name in _OWN:
        os.environ.pop(variable(name), None)
    _make_defaults(dict(_OWN))


def _make_defaults(settings: Mapping[str, Any]) -> None:
    from pequod_server import ServerConfig

    for name, value in settings.items():
        field = ServerConfig.model_fields[name]
        _OWN.setdefault(name, field.default)
        field.default = value
    ServerConfig.model_rebuild(force=True)
