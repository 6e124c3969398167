"""See `pequod_bench.systems.redis_system`."""

from pequod_bench.systems.redis_system import REDIS

__all__ = ["REDIS"]
