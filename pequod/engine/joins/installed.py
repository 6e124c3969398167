"""An installed join: its compiled parts, what is materialised of it, and its place among the other joins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pequod.engine.base.store import Table
from pequod.engine.joins.aggregates import make_aggregate
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.coverage import Coverage
from pequod.engine.joins.plan import Plan, compile_matchers
from pequod.engine.joins.updaters import Site
from pequod.engine.memory.ledger import Ledger
from pequod.language.patterns import compile_matcher
from pequod.language.ranges import prefix_end
from pequod.language.slots import fix_slots, number_slots
from pequod.language.spec import DELIMITER, JoinSpec, Operator, Pull, Slot, Snapshot


@dataclass(frozen=True, slots=True)
class Join:
    """An installed join as users see it."""

    #: The output's table, with a number for all but the first of a table: ``page``, ``page.2``.
    name: str
    spec: JoinSpec
    #: What is accepted but may surprise.
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class JoinCounters:
    """What happened to a join since it was installed."""

    #: Reads that found everything materialised and fresh.
    hits: int = 0
    #: Gaps computed, and the rows that this gave.
    computed_ranges: int = 0
    rows_computed: int = 0
    #: Log entries applied.
    log_applied: int = 0
    #: Contexts dropped because a context that they were computed from was.
    invalidations: int = 0


class InstalledJoin:
    """A join that the engine computes.

    Invariants:
        1. ``contexts`` holds the live contexts of a push join by prefix, ``coverage`` the status ranges of all.
        2. ``sites[i]`` holds one site per plan in use, for source i.
    """

    __slots__ = (
        "aggregate",
        "contexts",
        "counters",
        "coverage",
        "downstreams",
        "first",
        "info",
        "is_pull",
        "is_unique",
        "last",
        "ledger",
        "level_one_prefix",
        "match_output",
        "matchers",
        "numbers",
        "order",
        "output",
        "plans",
        "priority",
        "reads_tables",
        "rivals",
        "sites",
        "source_tables",
        "spec",
        "upstreams",
        "value_depth",
        "watches",
    )

    def __init__(
        self,
        info: Join,
        order: int,
        output: Table,
        source_tables: list[Table],
        *,
        ledger: Ledger,
        priority: int,
    ) -> None:
        spec = info.spec
        self.ledger = ledger
        #: What has a lower one is evicted first.
        self.priority = priority
        self.info = info
        self.spec = spec
        #: Position among all joins ever installed: of two that compute one key, the lower one's value stands.
        self.order = order
        #: The table that output keys belong to.
        self.output = output
        self.source_tables = source_tables
        #: Who follows changes of the output's table.
        self.watches = output.watches
        #: The range of all output keys.
        self.first = spec.output.literal_prefix
        end = prefix_end(self.first)
        assert end is not None, "a table name has an end"
        self.last = end if any(spec.output.slots()) else self.first + b"\0"
        self.numbers = number_slots(spec)
        self.matchers = compile_matchers(spec)
        self.match_output: Callable[[bytes], re.Match[bytes] | None] = compile_matcher(spec.output).match
        self.value_depth = next(
            depth for depth, source in enumerate(spec.sources) if source.operator is not Operator.CHECK
        )
        self.aggregate = make_aggregate(spec.sources[self.value_depth].operator)
        #: Every output key has at most one contribution, a copy: no aggregate state is needed.
        self.is_unique = spec.is_unique
        self.plans: dict[int, Plan] = {}
        self.sites: list[list[Site]] = [[] for _ in spec.sources]
        self.contexts: dict[bytes, Context] = {}
        self.coverage = Coverage()
        self.counters = JoinCounters()
        self.level_one_prefix = _compile_level_one_prefix(spec)
        #: Per source: the joins whose outputs it may read.
        self.upstreams: list[list[InstalledJoin]] = [[] for _ in spec.sources]
        #: All sources are tables that clients write: no join computes them, no database owns them.
        self.reads_tables = False
        #: The sites that read this join's outputs.
        self.downstreams: list[list[Site]] = []
        #: Joins that may compute the same keys.
        self.rivals: list[InstalledJoin] = []
        #: Computed on every read: declared so, or because a source is.
        self.is_pull = isinstance(spec.maintenance, Pull)

    @property
    def is_push(self) -> bool:
        """Materialised and kept up to date by updaters."""
        return not self.is_pull and not isinstance(self.spec.maintenance, Snapshot)

    def expires_s(self, now: float) -> float:
        """Return until when rows of a snapshot computed at ``now`` may be given out."""
        assert isinstance(self.spec.maintenance, Snapshot)
        return now + float(self.spec.maintenance.age_s)

    def clip(self, first: bytes, last: bytes | None) -> tuple[bytes, bytes]:
        """Return the part of ``[first, last)`` in which output keys lie; empty if it ends at or below its first key."""
        return max(first, self.first), self.last if last is None else min(last, self.last)

    def level_one(self, first: bytes) -> Context | None:
        """Return the level-one context in whose prefix's range a read from ``first`` on begins, if there is one."""
        prefix = self.level_one_prefix(first)
        return None if prefix is None else self.contexts.get(prefix)

    def holder(self, first: bytes, last: bytes) -> Context | None:
        """Return the context one of whose status ranges holds all of ``[first, last)``, None if none does.

        Cost:
            O(key length) for a timeline and its like, else O(log ranges).
        """
        context = self.level_one(first)
        if context is None or not context.holds(first, last):
            status = self.coverage.find(first)
            return status.context if status is not None and last <= status.last else None
        return context

    def plan_for(self, first: bytes, last: bytes) -> tuple[Plan, list[bytes], bytes]:
        """Return the plan for a read of ``[first, last)``, the environment with its fixed slots, and the prefix.

        Cost:
            O(length of ``first``); the first read of a level compiles its plan.
        """
        values = fix_slots(self.spec.output, first, last)
        plan = self.plans.get(len(values)) or self.plan_at(len(values))
        environment = plan.environment(values)
        return plan, environment, plan.prefix(environment)

    def plan_at(self, level: int) -> Plan:
        """Return the plan for reads that fix so many slots; compile it the first time."""
        plan = self.plans.get(level)
        if plan is None:
            plan = self.plans[level] = Plan(self.spec, level, self.numbers, self.matchers)
            if self.is_push:
                plan.sites = [Site(self, plan, step) for step in plan.steps]
                for sites, site in zip(self.sites, plan.sites, strict=True):
                    sites.append(site)
        return plan

    def _check(self) -> None:
        self.coverage._check()
        live = {status.context for status in self.coverage}
        for context in live:
            context._check()
            if self.is_unique or not self.is_push:
                assert not context.aggregate_states
            else:
                self._check_states(context)
        if self.is_push:
            assert live == set(self.contexts.values()), "invariant 1"
            assert all(context.prefix == prefix for prefix, context in self.contexts.items()), "invariant 1"
        for sites in self.sites:
            for site in sites:
                site._check()

    def _check_states(self, context: Context) -> None:
        results = {key: self.aggregate.result(state) for key, state in context.aggregate_states.items()}
        shown = {key: value for key, value in results.items() if value is not None}
        rows = {key: value for keys, values in context.rows.leaves() for key, value in zip(keys, values, strict=True)}
        assert shown == rows, "context invariant 6"


def _compile_level_one_prefix(spec: JoinSpec) -> Callable[[bytes], bytes | None]:
    """Compile a short cut from the first key of a read to the prefix of a level-one context, None if there is none."""
    parts = spec.output.parts
    start = len(spec.output.literal_prefix)
    slot = parts[1] if len(parts) > 1 else None
    if len(parts) < 3 or not isinstance(slot, Slot):
        return lambda _first: None
    follow = parts[2] if isinstance(parts[2], bytes) else b""
    if slot.width is not None:
        length = start + slot.width + len(follow)
        return lambda first: first[:length]
    extra = len(follow)

    def delimited(first: bytes) -> bytes | None:
        at = first.find(DELIMITER, start)
        return None if at < 0 else first[: at + extra]

    return delimited
