"""All systems that can be compared."""

from __future__ import annotations

from typing import Final

from pequod_bench.systems.memcached_system import MemcachedSystem
from pequod_bench.systems.pequod_system import CLIENT_PEQUOD, PEQUOD
from pequod_bench.systems.postgres_system import POSTGRES, POSTGRES_CALLS, POSTGRES_QUERY
from pequod_bench.systems.redis_system import RedisSystem
from pequod_bench.systems.system import System

#: In the order of the paper's figure; ratios are to the first.
SYSTEMS: Final[tuple[System, ...]] = (
    PEQUOD,
    RedisSystem(),
    CLIENT_PEQUOD,
    MemcachedSystem(),
    POSTGRES,
    POSTGRES_CALLS,
    POSTGRES_QUERY,
)
#: Those that differ where every operation goes by itself.
SYSTEMS_BY_CALL: Final = tuple(system for system in SYSTEMS if system is not POSTGRES_CALLS)
