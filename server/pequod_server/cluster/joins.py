"""The joins of the map: the same at every compute, changed through any server.

    AddJoin --> this engine takes them (or refuses them) --> the map's next version --> the other computes
    DropJoin ----------------------------------------------> the map's next version --> every compute
    ReplaceJoin --> this engine prepares it (or refuses it) --> the map's next version --> the other computes prepare it
                    all have prepared it ---------------------> the map's next version --> every compute has it in place

Joins of a server's own settings stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from pequod_grammar import parse, parse_one

from pequod.cluster.map import ClusterMap, ClusterState, JoinReplacement
from pequod.cluster.servers import ServerRole
from pequod.engine import Engine, JoinError, JoinInfo, JoinSpec, NotReplaceableError, UnknownJoinError
from pequod.errors import MapChangedError
from pequod_server.cluster.member import Member, laggards

#: Tries to change a map that others change at the same time.
_TRIES: Final = 8
#: Why a replacement has ended that is done.
_IN_PLACE: Final = "it is in its place"


class ClusterJoins:
    """Adds joins to the map, takes them out, and replaces them."""

    def __init__(self, engine: Engine, member: Member) -> None:
        self._engine = engine
        self._member = member

    async def add(self, specs: Sequence[JoinSpec]) -> list[JoinInfo]:
        """Add joins to the map, all or none; return once this server and, as far as they answer, all others have them.

        The warnings of the joins name servers that do not have them yet.

        Raises:
            JoinError: They cannot be installed.
            MapChangedError, MapFixedError, CoordinatorUnavailableError: The map cannot be changed.
        """
        before = {join.spec for join in self._engine.joins()}
        infos = self._tried(specs)
        try:
            version = await self._change(lambda present: [*present, *(one for one in specs if one not in present)])
        except BaseException:
            known = {*before, *specs_of(self._member.map)}
            # Where clients do not read, nothing was installed.
            fresh = [join for join in self._engine.joins() if join.spec in specs and join.spec not in known]
            for join in reversed(fresh):
                self._engine.drop_join(join.name)
            raise
        late = laggards(self._member.state, version)
        warning = (f"these servers do not have it yet: {', '.join(late)}",) if late else ()
        return [replace(info, warnings=(*info.warnings, *warning)) for info in infos]

    def _tried(self, specs: Sequence[JoinSpec]) -> list[JoinInfo]:
        """Install joins, where clients read; elsewhere try whether that can be done."""
        if ServerRole.COMPUTE in self._member.entry.roles:
            return self._engine.add_joins(specs)
        known, engine = specs_of(self._member.map), Engine()
        infos = engine.add_joins(known)
        if (coming := under_way(self._member.map)) is not None:
            old = spec_of(coming.old)
            engine.prepare_replacement(infos[known.index(old)].name, spec_of(coming.new))
        return engine.add_joins(specs)

    async def drop(self, spec: JoinSpec) -> None:
        """Take a join out of the map.

        Raises:
            MapChangedError, MapFixedError, CoordinatorUnavailableError: The map cannot be changed.
        """
        await self._change(lambda present: [one for one in present if one != spec])

    def elsewhere(self) -> list[JoinSpec]:
        """Return the joins of the map that are not installed here, since clients do not read here."""
        installed = {join.spec for join in self._engine.joins()}
        return [spec for spec in specs_of(self._member.map) if spec not in installed]

    def find(self, name: str) -> JoinSpec | None:
        """Return the join of the map that has a name at this server, None if the map has no such join."""
        known = specs_of(self._member.map)
        return next((join.spec for join in self._engine.joins() if join.name == name and join.spec in known), None)

    async def _change(self, change: Callable[[list[JoinSpec]], list[JoinSpec]]) -> int:
        """Change the joins of the map; return the version that has them as they shall be."""

        def changed(known: ClusterMap) -> ClusterMap:
            specs = change(present := specs_of(known))
            if specs == present:
                return known
            coming = under_way(known)
            if coming is not None and spec_of(coming.old) not in specs:
                known = replace(known, replacement=replace(coming, ended="the join was dropped"))
            return _with_joins(known, specs)

        return (await self._changed(changed)).version

    async def _changed(self, change: Callable[[ClusterMap], ClusterMap]) -> ClusterMap:
        """Change the map, and wait until the servers have it; return the map as it shall be.

        Args:
            change: Returns the next map, but for its version; the same map if nothing is to be changed.
        """
        for _ in range(_TRIES):
            known = self._member.map
            wanted = change(known)
            if wanted == known:
                return known
            wanted = replace(wanted, version=known.version_after)
            try:
                await self._member.put_map(wanted)
            except MapChangedError as error:
                await self._member.wait_for_change(error.version)
                continue
            return wanted
        raise MapChangedError(self._member.map.version)

    # Replacing.

    async def replace(self, name: str, spec: JoinSpec) -> JoinReplacement:
        """Have all computes prepare a join that is to take the place of another; one that is under way goes on.

        Raises:
            UnknownJoinError: No join has this name here.
            JoinError: It cannot take that place.
            NotReplaceableError: Another one is under way, or the map does not have the join.
            MapChangedError, MapFixedError, CoordinatorUnavailableError: The map cannot be changed.
        """
        old = self._replaceable(name)
        if spec == old:
            return _in_place(self._member.map, spec)
        tried = self._engine.prepare_replacement(name, spec)

        def begun(known: ClusterMap) -> ClusterMap:
            coming = under_way(known)
            if coming is not None:
                if (coming.old, coming.new) == (str(old), str(spec)):
                    return known
                raise NotReplaceableError(
                    name, f"the replacement by {coming.new!r} is under way; wait for its end, or cancel it"
                )
            if old not in specs_of(known):
                raise UnknownJoinError(name)
            return replace(known, replacement=JoinReplacement(known.version + 1, str(old), str(spec)))

        try:
            known = await self._changed(begun)
        except BaseException:
            coming = under_way(self._member.map)
            if coming is None or coming.new != str(spec):
                self._engine.end_replacement(tried, "the map was not changed")
            raise
        assert known.replacement is not None, "it has just been put there"
        return known.replacement

    def _replaceable(self, name: str) -> JoinSpec:
        """Return the join of the map that has a name here.

        Raises:
            UnknownJoinError: No join has this name here.
            NotReplaceableError: It is of this server's own settings.
        """
        if (old := self.find(name)) is not None:
            return old
        if all(join.name != name for join in self._engine.joins()):
            raise UnknownJoinError(name)
        raise NotReplaceableError(
            name, "it is in the settings of this server, and not in the cluster's map; change it there and start again"
        )

    async def end_replacement(self, name: str, reason: str) -> None:
        """End the replacement of the join that has a name here, if one is under way: the old join stays."""
        old = self.find(name)

        def ended(known: ClusterMap) -> ClusterMap:
            coming = under_way(known)
            if coming is None or old is None or coming.old != str(old):
                return known
            return replace(known, replacement=replace(coming, ended=reason))

        await self._changed(ended)

    async def put_in_place(self, version: int) -> None:
        """Have the map give the new join of a replacement its place, unless it has ended."""

        def switched(known: ClusterMap) -> ClusterMap:
            coming = under_way(known)
            if coming is None or coming.version != version:
                return known
            old, new = spec_of(coming.old), spec_of(coming.new)
            done = replace(known, replacement=replace(coming, is_in_place=True, ended=_IN_PLACE))
            return _with_joins(done, [new if one == old else one for one in specs_of(known)])

        await self._changed(switched)


def under_way(cluster_map: ClusterMap) -> JoinReplacement | None:
    """Return the replacement that computes prepare, None without one."""
    one = cluster_map.replacement
    return None if one is None or one.ended else one


def unprepared(state: ClusterState, version: int) -> list[str]:
    """Return the ids of the ready computes that have a replacement of the map to prepare, and have not prepared it.

    Computes that go by an older map are `laggards`; those that prepare nothing are none of them.
    """
    return [
        server.id
        for server in state.servers
        if server.is_ready
        and ServerRole.COMPUTE in server.roles
        and server.map_version >= version
        and server.prepared not in (version, None)
    ]


def _in_place(cluster_map: ClusterMap, spec: JoinSpec) -> JoinReplacement:
    """Return what has led to a join that is there; where it was no replacement, one that changes nothing."""
    last = cluster_map.replacement
    if last is not None and last.is_in_place and last.new == str(spec):
        return last
    return JoinReplacement(cluster_map.version, str(spec), str(spec), is_in_place=True, ended=_IN_PLACE)


def _with_joins(cluster_map: ClusterMap, specs: Sequence[JoinSpec]) -> ClusterMap:
    return replace(cluster_map, joins="".join(f"{spec};\n" for spec in specs))


def specs_of(cluster_map: ClusterMap) -> list[JoinSpec]:
    """Return the joins of a map.

    Raises:
        JoinError: One is malformed; the error shows where.
    """
    return list(_parsed(cluster_map.joins))


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[JoinSpec, ...]:
    """Return the joins of a text, parsed once: a server asks for those of its map at each change of a server."""
    if not text.strip():
        return ()
    try:
        return tuple(parse(text))
    except JoinError as error:
        raise error.with_text(text) from None


@lru_cache(maxsize=4)
def spec_of(text: str) -> JoinSpec:
    """Return the join of a text in canonical form."""
    return parse_one(text)
