"""A lake behind the cache. It needs the extra `lake`."""

from pequod_server.backing.lake.store import LakeStore

__all__ = ["LakeStore"]
