"""Building: a join that is to take the place of another is computed where reads have had that one computed.

    old  t|ann|  [0100 ........... end)   read 20 reads ago     built in the first pass
         t|bob|  [0000 ........... end)   read 50,000 reads ago built in the second
         t|liz|  a gap                                          left to the reads after the switch

Each pass goes through the ranges of the old join in key order, a few at a time, and computes the same ranges of the new
one. The first passes take what was read lately, so that it is there if memory does not do for all; the last ones what
reads have had computed since the pass before. A built range is kept up to date as those of all joins are, and evicted
like them: then it is cold after the switch, and as right as ever.
"""

from __future__ import annotations

from typing import Final

from pequod.engine.joins.contexts import StatusRange
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.memory.eviction import Evictor
from pequod.engine.memory.ledger import ENTRY, UNLIMITED
from pequod.engine.read import Read
from pequod.engine.reads.reader import Reader
from pequod.engine.reads.scans import Scans
from pequod.engine.writes.replacement import Replacement
from pequod.language.errors import LimitExceededError
from pequod.language.ranges import Range

#: Ranges of the old join that a step looks at, and rows of it for which a step computes those of the new one.
_RANGES_A_STEP: Final = 64
ROWS_A_STEP = 512
#: The first passes take ranges of which a read was among the latest of this number; a third pass takes all.
_LATELY: Final = (10_000, 1_000_000)
#: The most passes, the last ones for what reads have had computed meanwhile.
_PASSES_MAX: Final = 6
#: The largest share of the limit on memory for what is built.
_BUILT_SHARE: Final = 0.25


class Building:
    """The building of one replacement's new join.

    Invariants:
        1. Ranges below ``_at`` that were used since ``_since`` are built, unless they were evicted, or reads have had
        them computed during this pass.
    """

    __slots__ = (
        "_at",
        "_begun_at",
        "_built_bytes",
        "_memory",
        "_new",
        "_old",
        "_pass",
        "_reader",
        "_replacement",
        "_scans",
        "_since",
    )

    def __init__(self, replacement: Replacement, reader: Reader, scans: Scans, memory: Evictor) -> None:
        self._replacement = replacement
        self._old, self._new = replacement.old, replacement.new
        self._reader = reader
        self._scans = scans
        self._memory = memory
        self._pass = -1
        self._at = b""
        #: The number of the first read of this pass, and of the first one that makes a range one of this pass.
        self._begun_at = self._since = 0
        self._built_bytes = 0
        self._begin_pass()

    def build_some(self, now: float) -> bool:
        """Build some rows, or look for what is to be built; return whether there is more to do.

        Raises:
            MissingError: Rows of a database that it needs are not loaded, or an index is not made.

        Cost:
            That of computing `ROWS_A_STEP` rows of the old join, or of looking at some ranges.
        """
        if not self._new.is_push or not self._has_room():
            return False
        ranges = self._old.coverage.walk_over(self._at, self._old.last)
        for looked, status in enumerate(ranges):
            if looked == _RANGES_A_STEP:
                self._at = status.first
                return True
            if status.context.last_used >= self._since and (gaps := self._gaps(status)):
                return self._build(status, gaps[0], now)
        if self._pass + 1 == _PASSES_MAX or (self._pass > len(_LATELY) and self._begun_at == self._memory.reads.number):
            return False
        self._begin_pass()
        return True

    def look_again(self) -> None:
        """Begin with what reads have had computed since the latest pass: more passes follow."""
        self._pass = len(_LATELY)
        self._begin_pass()

    def _begin_pass(self) -> None:
        number = self._memory.reads.number
        self._pass += 1
        if self._pass < len(_LATELY):
            self._since = number - _LATELY[self._pass]
        else:
            self._since = 0 if self._pass == len(_LATELY) else self._begun_at
        self._begun_at = number
        self._at = self._old.first
        self._replacement.ranges_expected = len(self._old.coverage)

    def _has_room(self) -> bool:
        limit_bytes = self._memory.ledger.limit_bytes
        return limit_bytes >= UNLIMITED or self._built_bytes <= limit_bytes * _BUILT_SHARE

    def _gaps(self, status: StatusRange) -> list[Range]:
        """Return the parts of a range of the old join in which the new one has keys that are not computed yet."""
        first, last = self._new.clip(max(self._at, status.first), status.last)
        if first >= last:
            return []
        plan, _, prefix = self._new.plan_for(*self._new.clip(status.first, status.last))
        first, last = max(first, prefix), min(last, plan.end_of(prefix))
        return self._new.coverage.gaps(*plan.widen(first, last, prefix)) if first < last else []

    def _build(self, status: StatusRange, gap: Range, now: float) -> bool:
        """Build a gap, or the part of it in which the old join has as many rows as a step takes.

        Returns:
            Whether building goes on.
        """
        keys = status.context.slice(*gap, ROWS_A_STEP + 1).keys
        last = keys[ROWS_A_STEP] if len(keys) > ROWS_A_STEP else gap.last
        plan, _, prefix = self._new.plan_for(*self._new.clip(status.first, status.last))
        # No part of a group is built, if the new join keeps some rows of each alone.
        last = min(gap.last, plan.widen(gap.first, last, prefix)[1])
        read = self._memory.reads.begin(now)
        try:
            is_built = self._fill(status, gap.first, last, read)
        except LimitExceededError:
            # What is built stays; reads have the rest computed after the switch.
            return False
        self._scans.refuse_missing(read)
        if is_built:
            self._at = last
            self._replacement.ranges_built += last == gap.last
        return True

    def _fill(self, status: StatusRange, first: bytes, last: bytes, read: Read) -> bool:
        """Compute a gap; return whether it is computed, and not to be tried again."""
        new = self._new
        plan, environment, prefix = new.plan_for(*new.clip(status.first, status.last))
        before = _bytes(new, prefix)
        if new.level_one_prefix(first) == prefix and prefix not in new.contexts:
            self._scans.fill_timeline(new, prefix, first, last, read)
        while is_lacking := bool(new.coverage.gaps(first, last)):
            if not self._reader.fill(new, new.make_context(plan, environment, prefix), first, last, read):
                break
        self._built_bytes += max(0, _bytes(new, prefix) - before)
        return not is_lacking


def _bytes(join: InstalledJoin, prefix: bytes) -> int:
    """Return what the rows of a context take, with the tails that those of all contexts share."""
    context = join.contexts.get(prefix)
    own_bytes = 0 if context is None else len(context.rows) * ENTRY + context.row_bytes + context.state_bytes
    return join.tails.byte_count + own_bytes
