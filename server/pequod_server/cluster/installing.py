"""The joins of the map in an engine: installed, dropped, prepared to take the place of others, and put there.

map 4   a, b                                 installed in this order
map 5   a, b    replacement b -> c           c is built beside b; reads see b
map 6   a, c    replacement b -> c, ended    c has b's place, name and order: also where 5 was never seen
"""

from __future__ import annotations

from collections.abc import Sequence

from pequod.cluster.map import ClusterMap, JoinReplacement
from pequod.engine import Engine, JoinError, JoinSpec
from pequod_server.cluster.joins import spec_of, specs_of


class MapJoins:
    """Installs the joins of the map in an engine.

    Invariants:
        1. ``_taken`` are the joins of the last map that was taken in; all of them are installed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taken: list[JoinSpec] = []

    def take_in(self, cluster_map: ClusterMap) -> None:
        """Make the engine's joins those of a map, all or none, and prepare what is to take the place of one.

        Raises:
            JoinError: A join of the map cannot be installed, and the joins are as before; or it cannot be prepared.
        """
        specs, coming = specs_of(cluster_map), cluster_map.replacement
        self._settle(coming, specs)
        self._install(specs)
        if coming is None:
            return
        old, new = spec_of(coming.old), spec_of(coming.new)
        if not coming.ended:
            self._engine.prepare_replacement(self._name_of(old), new)
        elif coming.is_in_place and new in specs:
            self._engine.remember_replaced(self._name_of(new), old)

    def _settle(self, coming: JoinReplacement | None, specs: Sequence[JoinSpec]) -> None:
        """Put the join that is prepared in its place if the map has it there; end it if the map does not want it."""
        present = self._engine.replacement
        if present is None:
            if coming is None or not coming.is_in_place:
                return
            # Computes prepared it while this server was away: it has its place and order all the same.
            old, new = spec_of(coming.old), spec_of(coming.new)
            if old not in self._taken or old in specs or new not in specs or new in self._taken:
                return
            present = self._engine.prepare_replacement(self._name_of(old), new)
        old, new = present.old.spec, present.new.spec
        if new in specs and old not in specs:
            self._engine.put_in_place(present)
            self._taken = [new if one == old else one for one in self._taken]
        elif coming is None or (coming.old, coming.new) != (str(old), str(new)):
            self._engine.end_replacement(present, "the map has it no more")
        elif coming.ended:
            self._engine.end_replacement(present, coming.ended)

    def _install(self, specs: list[JoinSpec]) -> None:
        kept = [spec for spec in self._taken if spec in specs]
        # From the first one on that is not where the map has it, they are installed anew: the earliest counts.
        at = next((at for at, (one, other) in enumerate(zip(kept, specs, strict=False)) if one != other), len(kept))
        gone = [spec for spec in self._taken if spec not in kept[:at]]
        for spec in reversed(gone):
            self._drop(spec)
        try:
            self._engine.add_joins(specs)
        except JoinError:
            if gone:
                self._restore(gone[0])
            raise
        self._taken = specs

    def _restore(self, first: JoinSpec) -> None:
        """Install the joins from one on that was dropped, as they were before."""
        present = self._taken[self._taken.index(first) :]
        for spec in reversed(present):
            self._drop(spec)
        self._engine.add_joins(present)

    def _drop(self, spec: JoinSpec) -> None:
        for join in self._engine.joins():
            if join.spec == spec:
                self._engine.drop_join(join.name)

    def _name_of(self, spec: JoinSpec) -> str:
        return next(join.name for join in self._engine.joins() if join.spec == spec)

    def _check(self) -> None:
        installed = {join.spec for join in self._engine.joins()}
        assert installed.issuperset(self._taken), "1: a join of the map is not installed"
