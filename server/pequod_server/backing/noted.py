"""The keys that triggers noted and that are loaded: those that a feed has to read, or to have read again.

notes   p|bob|1  p|bob|2  p|eve|7  p|bob|1  ...        p|eve| is not loaded
keys    p|bob|1  p|bob|2                               read at one moment: one `Changes`
ranges  p|                                             too many keys: one `Reload` of the pattern
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pequod_server.backing.mapping import Mapping
from pequod_server.backing.store import IsWanted, KeyRange, whole

#: If more keys of a pattern are noted, the feed has the whole pattern read again: a key takes 10 µs, and memory.
KEYS_MAX: Final = 50_000
#: If a whole pattern is read again, so is another one with more keys than this.
_SINGLE_MAX: Final = 1_000


class Noted:
    """The keys of one or a few commits, by pattern.

    Args:
        is_wanted: Loads that begin from here on see these commits, so a key that is not loaded now is not needed.
    """

    def __init__(self, mappings: Sequence[Mapping], is_wanted: IsWanted) -> None:
        self._is_wanted = is_wanted
        self._by_identity = {mapping.identity: mapping for mapping in mappings}
        self._keys: dict[str, dict[bytes, None]] = {identity: {} for identity in self._by_identity}
        self._given_up: dict[str, None] = {}

    def add(self, identity: str, key: bytes) -> None:
        """Note a key of a pattern."""
        keys = self._keys[identity]
        if key in keys or identity in self._given_up or not self._is_wanted(key):
            return
        keys[key] = None
        if len(keys) > KEYS_MAX:
            self.give_up(identity)

    def give_up(self, identity: str) -> None:
        """Have the whole pattern read again."""
        self._given_up[identity] = None
        self._keys[identity].clear()

    @property
    def keys(self) -> list[bytes]:
        """The keys to read, each once; none if there are ranges to read again."""
        return [] if self._given_up else [key for keys in self._keys.values() for key in keys]

    @property
    def ranges(self) -> tuple[KeyRange, ...]:
        """The ranges to read again, if any: all of them in one event, so that commits stay whole."""
        if not self._given_up:
            return ()
        found: list[KeyRange] = []
        for identity, mapping in self._by_identity.items():
            keys = self._keys[identity]
            if identity in self._given_up or len(keys) > _SINGLE_MAX:
                found += whole([mapping])
            else:
                found += [KeyRange(key, key + b"\0") for key in keys]
        return tuple(found)
