"""Settings at random for the servers of a run of tests: those that change no answer, from a seed.

    PEQUOD_SETTINGS_SEED=any make test      draws a seed, which the header of pytest names
    PEQUOD_SETTINGS_SEED=7 make test        repeats it

A server has them unless its test gives others. Without the variable all servers have the defaults, as in CI: a test may
be about how a default behaves.
"""

from __future__ import annotations

import os
from random import Random, SystemRandom
from typing import Any, Final

VARIABLE: Final = "PEQUOD_SETTINGS_SEED"
_SEEDS: Final = 1_000_000
#: What is drawn of each setting: legal values, small ones among them, with which every answer is the same.
_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "rows_max": (1, 2, 7, 100, 8192),
    "messages_bytes_max": (0, 64 << 20, 1 << 30),
    "memory_limit": ("75%", "none", "4GiB"),
    "request_ids_keep_s": (60.0, 600.0, 6000.0),
    "keepalive_s": (0.0, 5.0, 60.0),
    "watch_linger_s": (10.0, 60.0, 600.0),
    "backfill_lease_s": (30.0, 60.0, 600.0),
    "peer_keep_bytes": (1 << 20, 64 << 20),
    "slow_ms": (0, 1, 100),
    "uvloop": (True, False),
}


def seed_of_the_run() -> int | None:
    """Return the seed; None: settings are the defaults. A drawn one is in the environment from then on."""
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    if not given.isdigit():
        given = os.environ[VARIABLE] = str(SystemRandom().randrange(_SEEDS))
    return int(given)


def drawn(seed: int) -> dict[str, Any]:
    """Return the settings of a seed."""
    random = Random(seed)
    return {name: random.choice(values) for name, values in _VALUES.items()}


def use(settings: dict[str, Any]) -> None:
    """Make settings the defaults of the servers of this process, and of those that it starts."""
    from pequod_server import ServerConfig
    from pequod_server.settings import variable

    for name, value in settings.items():
        ServerConfig.model_fields[name].default = value
        os.environ[variable(name)] = str(value)
    ServerConfig.model_rebuild(force=True)
