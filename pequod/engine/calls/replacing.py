"""Puts joins in the places of others."""

from __future__ import annotations

from typing import Final

from pequod.engine.calls.composed import Composed
from pequod.engine.reads.building import Building
from pequod.engine.writes.replacement import Replacement
from pequod.language.errors import NotReplaceableError
from pequod.language.spec import JoinSpec

#: The most contexts of a join whose place another has taken that one step drops.
_CONTEXTS_A_STEP: Final = 8


class ReplaceCalls(Composed):
    """Replacing joins, step by step."""

    def begin_replacement(self, name: str, spec: JoinSpec) -> Replacement:
        """Begin to put a join in the place of the installed one of a name; `replace_some` goes on with it.

        Nothing that reads or watches see changes before it is in its place. A join that is there already is left as it
        is, and one that is on its way goes on.

        Raises:
            UnknownJoinError: No join has this name.
            JoinError: It is malformed, part of a cycle, hidden by an earlier join or installed already, computes keys
                of another table, or keys that clients have written.
            NotReplaceableError: Another replacement is under way.

        Cost:
            O(joins + keys of the output table).
        """
        before = self._replacing.present
        replacement = self._replacing.begin(name, spec)
        if replacement is not before and replacement is self._replacing.present:
            self._building = Building(replacement, self._reader, self._scans, self._memory)
        return replacement

    def prepare_replacement(self, name: str, spec: JoinSpec) -> Replacement:
        """Begin a replacement as `begin_replacement` does, and leave it to `put_in_place` when reads see the new rows.

        Raises:
            UnknownJoinError, JoinError, NotReplaceableError: See `begin_replacement`.
        """
        replacement = self.begin_replacement(name, spec)
        replacement.waits = True
        return replacement

    def replace_some(self, *, now: float = 0.0) -> bool:
        """Do a step of what replacing joins takes; return whether there is more to do.

        At the step that puts the new join in its place, the replacement is `Replacement.is_in_place`; the steps after
        that drop what the old one had computed. One that waits is `Replacement.is_built` when there is no more to do
        now; later steps build what reads have had computed meanwhile.

        Raises:
            JoinError: Clients have written keys that the new join computes; the replacement has ended.
            MissingError: Rows of a database that it needs are not loaded, or an index is not made.

        Cost:
            Some milliseconds; at the switch O(contexts computed from the old join + rows that are watched).
        """
        replacement = self._replacing.present
        if replacement is None:
            self._building = None
            return self._replacing.clear_some(_CONTEXTS_A_STEP)
        assert self._building is not None, "it was made with the replacement"
        if self._building.build_some(now):
            return True
        if replacement.waits:
            replacement.is_built = True
            self._building.look_again()
            return False
        self.put_in_place(replacement)
        return True

    def put_in_place(self, replacement: Replacement) -> None:
        """Put the new join in its place now, whatever is built of it; `replace_some` drops what the old one had.

        Raises:
            JoinError: Clients have written keys that the new join computes; the replacement has ended.

        Cost:
            O(contexts computed from the old join + rows that are watched).
        """
        self._replacing.switch(replacement)
        self._hits.clear()
        self.backfills.review()
        self.revision += 1

    def end_replacement(self, replacement: Replacement, reason: str) -> None:
        """End a replacement before the new join is in its place; one that has ended stays as it is."""
        self._replacing.end(replacement, reason)

    @property
    def replacement(self) -> Replacement | None:
        """The replacement that is under way, None if there is none."""
        return self._replacing.present

    def remember_replaced(self, name: str, before: JoinSpec) -> None:
        """Remember what a join was before it was replaced, where that was before the engine's start.

        Raises:
            UnknownJoinError: No join has this name.
        """
        self._catalog.find(name)
        self._replacing.before[name] = before

    def replaced_spec(self, name: str) -> JoinSpec:
        """Return what a join was before it was replaced the last time.

        Raises:
            UnknownJoinError: No join has this name.
            NotReplaceableError: It has not been replaced since the engine's start.
        """
        self._catalog.find(name)
        spec = self._replacing.before.get(name)
        if spec is None:
            raise NotReplaceableError(name, "no earlier text of it is known since the start; give the text itself")
        return spec
