"""See `pequod_bench.systems.redis_system`."""

from pequod_bench.systems.redis_system import RedisSystem

__all__ = ["RedisSystem"]
