"""A compiled join: what all contexts of the join share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pequod.answers.explanations import Note
from pequod.engine.base.range_tree import RangeTree
from pequod.engine.base.table import Table
from pequod.engine.joins.aggregates import make_aggregate
from pequod.engine.joins.materialised import JoinCounters
from pequod.engine.joins.plan import compile_matchers
from pequod.engine.joins.tails import RowTails
from pequod.engine.memory.ledger import Ledger
from pequod.language.patterns import compile_matcher
from pequod.language.ranges import prefix_end
from pequod.language.slots import number_slots
from pequod.language.spec import JoinSpec, Snapshot
from pequod.language.views import RecordView, plain_join


@dataclass(frozen=True, slots=True)
class JoinInfo:
    """An installed join, for users."""

    #: The output's table, with a number for all but the first of a table: ``page``, ``page.2``.
    name: str
    spec: JoinSpec
    #: What was accepted but may surprise the author.
    warnings: tuple[str, ...] = ()
    #: Why its sources had no rows when it was installed, where that may surprise.
    notes: tuple[Note, ...] = ()


class CompiledJoin:
    """A join ready for use, and the properties that all its contexts share."""

    __slots__ = (
        "aggregate",
        "computed_until",
        "counters",
        "first",
        "info",
        "is_quiet",
        "is_unique",
        "last",
        "ledger",
        "match_output",
        "matchers",
        "numbers",
        "order",
        "plain",
        "priority",
        "source_tables",
        "spec",
        "tails",
        "value_depth",
        "views",
        "watched",
    )

    def __init__(
        self, info: JoinInfo, order: int, source_tables: list[Table], watched: RangeTree, ledger: Ledger, priority: int
    ) -> None:
        spec = info.spec
        self.info = info
        self.spec = spec
        #: Position among all joins ever installed: if two compute one key, the value of the lower one counts.
        self.order = order
        self.source_tables = source_tables
        #: Watched ranges of the output's table; contexts in them are not evicted.
        self.watched = watched
        self.ledger = ledger
        #: Contexts of joins with a lower one are evicted first.
        self.priority = priority
        self.counters = JoinCounters()
        #: The number of the last read that computes long ranges at once, since they were just computed in slices.
        self.computed_until = 0
        #: Whether all sources are tables that clients write, and no watch or join follows the rows: see
        #: `Relations.review`.
        self.is_quiet = False
        #: The range of all output keys.
        self.first = spec.output.literal_prefix
        end = prefix_end(self.first)
        assert end is not None, "a table name has an end"
        self.last = end if any(spec.output.slots()) else self.first + b"\0"
        #: The join over plain keys, which all its plans and contexts have; another one only if it looks at records.
        self.plain = spec
        #: For each source: what it sees of records; None if it does not look at values.
        self.views: list[RecordView | None] = [None] * len(spec.sources)
        if spec.has_records:
            self.plain, self.views = plain_join(spec)
        self.numbers = number_slots(self.plain)
        self.matchers = compile_matchers(self.plain)
        self.match_output: Callable[[bytes], re.Match[bytes] | None] = compile_matcher(spec.output).match
        self.value_depth = spec.value_depth
        self.aggregate = make_aggregate(spec.value_source.operator)
        #: Whether every output key has at most one contribution, a copy: then no aggregate state is needed.
        self.is_unique = spec.is_unique
        #: Where `keep` leaves some rows alone, and sources decide about each: contexts compute the same rows, each by
        #: itself, where a fan-out would give one tail to all.
        is_shared = spec.keep is not None and spec.is_unique and spec.is_decided and not spec.is_composed
        self.tails = RowTails(ledger, is_shared=is_shared)

    @property
    def snapshot_age_s(self) -> float | None:
        """How long rows may be returned after they were computed, if it is a snapshot; None otherwise."""
        maintenance = self.spec.maintenance
        return float(maintenance.age_s) if isinstance(maintenance, Snapshot) else None

    def clip(self, first: bytes, last: bytes | None) -> tuple[bytes, bytes]:
        """Return the part of ``[first, last)`` in which output keys lie; empty if it ends at or below its first key."""
        return max(first, self.first), self.last if last is None else min(last, self.last)
