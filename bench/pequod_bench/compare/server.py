"""See `pequod_bench.systems.server`."""

from pequod_bench.systems.server import free_port

__all__ = ["free_port"]
