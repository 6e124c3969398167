"""The joins of the map: the same at every compute, changed through any server.

    AddJoin --> this engine takes them (or refuses them) --> the map's next version --> the other computes
    DropJoin ----------------------------------------------> the map's next version --> every compute

Joins of a server's own settings stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pequod_grammar import parse

from pequod.cluster.map import ClusterMap
from pequod.cluster.servers import ServerRole
from pequod.engine import Engine, JoinError, JoinInfo, JoinSpec
from pequod.errors import MapChangedError
from pequod_server.cluster.member import Member, laggards

#: Tries to change a map that others change at the same time.
_TRIES: Final = 8


class MapJoins:
    """Installs the joins of the map in an engine.

    Invariants:
        1. ``_taken`` are the joins of the last map that was taken in; all of them are installed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taken: list[JoinSpec] = []

    def take_in(self, cluster_map: ClusterMap) -> None:
        """Make the engine's joins those of a map, all or none.

        Raises:
            JoinError: A join of the map cannot be installed; the joins are as before.
        """
        specs = specs_of(cluster_map)
        gone = [spec for spec in self._taken if spec not in specs]
        for spec in reversed(gone):
            self._drop(spec)
        try:
            self._engine.add_joins(specs)
        except JoinError:
            self._engine.add_joins(self._taken)
            raise
        self._taken = specs

    def _drop(self, spec: JoinSpec) -> None:
        for join in self._engine.joins():
            if join.spec == spec:
                self._engine.drop_join(join.name)

    def _check(self) -> None:
        installed = {join.spec for join in self._engine.joins()}
        assert installed.issuperset(self._taken), "1: a join of the map is not installed"


class ClusterJoins:
    """Adds joins to the map, and takes them out."""

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
        known = specs_of(self._member.map)
        return Engine().add_joins([*known, *specs])[len(known) :]

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
        for _ in range(_TRIES):
            known = self._member.map
            present = specs_of(known)
            wanted = change(present)
            if wanted == present:
                return known.version
            changed = replace(known, version=known.version + 1, joins="".join(f"{spec};\n" for spec in wanted))
            try:
                await self._member.put_map(changed)
            except MapChangedError as error:
                await self._member.wait_for_change(error.version)
                continue
            return changed.version
        raise MapChangedError(self._member.map.version)


def specs_of(cluster_map: ClusterMap) -> list[JoinSpec]:
    """Return the joins of a map.

    Raises:
        JoinError: One is malformed; the error shows where.
    """
    if not cluster_map.joins.strip():
        return []
    try:
        return list(parse(cluster_map.joins))
    except JoinError as error:
        raise error.with_text(cluster_map.joins) from None
