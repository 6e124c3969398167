"""Replacing: a join takes the place of an installed one, at one revision.

    begin     the new join is checked, and told of changes of its sources        reads see the old rows
    build     ranges that reads have had computed are computed of it, too        reads see the old rows
    switch    it has the old one's name and order                                reads see the new rows
    clear     the contexts of the old join are dropped, some at a time

Until the switch a replacement can be ended: then nothing has changed. Everything may change between the steps: both
joins are kept up to date as all joins are, and no read sees rows of the one that is beside the installed ones.
"""

from __future__ import annotations

from typing import Final

from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.memory.story import Reason
from pequod.engine.writes.catalog import Catalog
from pequod.engine.writes.changes import Writer
from pequod.language.cycles import refuse_cycles
from pequod.language.errors import JoinError, NotReplaceableError
from pequod.language.rules import check_spec
from pequod.language.shadowing import hides
from pequod.language.spec import JoinSpec

#: Why a replacement has ended that is done.
IN_PLACE: Final = "it is in its place"


class Replacement:
    """A join on its way to the place of an installed one.

    Invariants:
        1. Until it has ended, ``old`` is installed and ``new`` is coming.
    """

    __slots__ = ("ended", "is_built", "new", "old", "ranges_built", "ranges_expected", "waits")

    def __init__(self, old: InstalledJoin, new: InstalledJoin) -> None:
        self.old = old
        self.new = new
        #: Whether it takes its place only when it is told to: other servers build it, too.
        self.waits = False
        #: Whether what reads have had computed was built once; what they have computed since is built again and again.
        self.is_built = False
        #: Ranges that are computed of the new join, and those that reads have had computed of the old one.
        self.ranges_built = 0
        self.ranges_expected = 0
        #: `IN_PLACE`, or why it has ended without that; None while it is under way.
        self.ended: str | None = None

    @property
    def name(self) -> str:
        """The name of both joins."""
        return self.old.info.name

    @property
    def is_in_place(self) -> bool:
        """Whether the new join has taken its place."""
        return self.ended is IN_PLACE


class Replacing:
    """Begins and ends replacements.

    Invariants:
        1. ``present`` is the replacement whose new join the catalog has as coming; None: there is none.
    """

    __slots__ = ("_catalog", "_writer", "before", "present")

    def __init__(self, catalog: Catalog, writer: Writer) -> None:
        self._catalog = catalog
        self._writer = writer
        self.present: Replacement | None = None
        #: By name: what a join was before it was replaced the last time.
        self.before: dict[str, JoinSpec] = {}

    def begin(self, name: str, spec: JoinSpec) -> Replacement:
        """Begin to put a join in the place of another; see `Engine.begin_replacement`."""
        old = self._catalog.find(name)
        if self.present is not None:
            if self.present.name == name and self.present.new.spec == spec:
                return self.present
            raise NotReplaceableError(
                name, f"the replacement of {self.present.name!r} is under way; wait for its end, or cancel it"
            )
        if spec == old.spec:
            replacement = Replacement(old, old)
            replacement.ended = IN_PLACE
            return replacement
        self._refuse(old, spec)
        self._catalog.add_beside(old, spec)
        assert self._catalog.coming is not None, "it has just been added"
        self.present = Replacement(old, self._catalog.coming)
        return self.present

    def _refuse(self, old: InstalledJoin, spec: JoinSpec) -> None:
        """Refuse a join that cannot take the place of another.

        Raises:
            JoinError: It cannot.
        """
        check_spec(spec)
        span, name = spec.output.span, old.info.name
        if spec.output.table != old.spec.output.table:
            raise JoinError(
                f"the join {name!r} computes keys of another table, as {old.spec.output}",
                hint="add this one beside it, and drop the other when nothing reads it any more",
                span=span,
            )
        for other in self._catalog:
            if other is not old and other.spec == spec:
                raise JoinError(
                    f"this join is installed already, as {other.info.name!r}",
                    hint=f"drop {name!r}: then that one computes the keys",
                    span=span,
                )
            if other.order < old.order and hides(other.spec, spec):
                raise JoinError(
                    f"nothing of it would be shown: the join {other.info.name!r}, which was installed before, computes "
                    "the same keys",
                    hint=f"replace or drop {other.info.name!r}",
                    span=span,
                )
        self._catalog.refuse_written_keys(spec)
        refuse_cycles(self._catalog.specs_with(spec, old), {spec})

    def switch(self, replacement: Replacement) -> None:
        """Put the new join in its place.

        Raises:
            JoinError: Clients have written keys that it computes; the replacement has ended.
        """
        assert replacement is self.present, "it is under way"
        before = replacement.old.spec
        try:
            self._catalog.put_in_place(replacement.old)
        except JoinError as error:
            self.end(replacement, error.reason)
            raise
        self.before[replacement.name] = before
        replacement.ended = IN_PLACE
        self.present = None

    def end(self, replacement: Replacement, reason: str) -> None:
        """End a replacement; the old join stays. One that has ended stays as it is."""
        if replacement is self.present:
            self.present = None
            replacement.ended = reason
            self._catalog.remove_beside(replacement.new)

    def note_drop(self, name: str) -> None:
        """Note that a join is about to be dropped."""
        if self.present is not None and self.present.name == name:
            self.end(self.present, "the join was dropped")
        self.before.pop(name, None)

    def clear_some(self, count: int) -> bool:
        """Drop up to ``count`` contexts of joins whose place others have taken; return whether there may be more.

        Cost:
            O(frames of what is dropped).
        """
        for join in self._catalog.gone:
            for status in join.coverage.beyond(None, count):
                if status.context.is_live:
                    self._writer.drop(status.context, Reason.JOINS)
            if not len(join.coverage):
                self._catalog.remove_beside(join)
            return True
        return False

    def _check(self) -> None:
        assert (self.present and self.present.new) is self._catalog.coming, "invariant 1"
        assert self.present is None or self.present.ended is None
