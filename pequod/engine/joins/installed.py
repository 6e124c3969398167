"""An installed join: its sites, its materialised rows, and its place among the other joins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pequod.answers.rows import Rows
from pequod.engine.base.table import Table
from pequod.engine.joins import timeline
from pequod.engine.joins.collecting import make_kernel
from pequod.engine.joins.compiled import CompiledJoin, JoinInfo
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.coverage import Coverage
from pequod.engine.joins.frames import Frames, Updaters
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.level_one import level_one_of
from pequod.engine.joins.plan import FrameKey, Plan, Step
from pequod.engine.joins.watches import Watch, WatchIndex
from pequod.engine.memory.ledger import Ledger
from pequod.engine.read import Reads
from pequod.language.patterns import compile_builder, cuts
from pequod.language.ranges import prefix_end
from pequod.language.slots import fix_slots, known_run
from pequod.language.spec import Operator, Pull, Slot, Snapshot
from pequod.native import NativeKernel, Route, core


class Site(Frames[Context]):
    """One step of a plan at its source: finds the updaters for a changed key, and the tail of their rows."""

    __slots__ = ("_tail", "gives_one_row", "is_alike", "is_counted", "is_last", "join", "plan", "step")

    def __init__(self, join: InstalledJoin, plan: Plan, step: Step) -> None:
        super().__init__(
            join.ledger,
            is_ordered=join.has_ranges(step.depth),
            is_plain=not (step.extras or step.has_long_frame_keys),
        )
        self.join = join
        self.plan = plan
        self.step = step
        self.is_last = step is plan.steps[-1]
        has_own_tail = timeline.is_on and plan.tail_slots <= {number for _, number in step.bindings}
        is_copied = join.is_unique and plan.compose is None
        #: Whether each source key makes one row under a context's prefix, which is the same in all contexts.
        self.is_alike = is_copied and has_own_tail
        #: The same for a row that counts it, which may have others beside it.
        self.is_counted = join.spec.value_source.operator is Operator.COUNT and plan.cap is None and has_own_tail
        groups = {number: group for group, number in step.bindings}
        by_name = {name: groups[number] for name, number in join.numbers.items() if number in groups}
        #: The slots of a matching key -> the tail of its row.
        self._tail = compile_builder(plan.tail_parts, by_name) if self.is_alike else plan.tail
        #: Whether frames have extras and give one row each: the frame key is the whole source key.
        self.gives_one_row = step.is_point and bool(step.extras) and is_copied
        self.route, self.told = self._make_route(), join.told

    def at(self, key: bytes, match: re.Match[bytes]) -> Updaters[Context] | None:
        """Return the updaters for a change of ``key``; ``match`` is the step's match of it.

        Cost:
            O(key length), for any number of frames.
        """
        return self._by_key.get(self.step.frame_key_of(key, match))

    def _make_route(self) -> Route | None:
        step, parts = self.step, self.join.plain.sources[self.step.depth].pattern.parts
        if self.join.views[step.depth] is not None and not step.is_value:
            # Python looks at the records, and only hands over plain rows that give rows.
            return None
        if step.is_value and self.plan.cap is not None and not self.plan.cap.takes_appends:
            # And at which rows are kept.
            return None
        if core is None or not self._is_native or step.gathered is not None:
            return None
        if step.is_value and not (self.is_last and (self.is_alike or self.is_counted)):
            return None
        shape = cuts(parts)
        tail = self.plan.tail_parts if step.is_value else ()
        if shape is None or max(len(parts), len(tail)) > core.PARTS_MAX:
            return None
        places = {part.name: at for at, part in enumerate(parts) if isinstance(part, Slot)}
        pieces = [part if isinstance(part, bytes) else places[part.name] for part in tail]
        is_count = step.is_value and self.is_counted
        route: Route = core.Route(
            self._by_key, shape, known_run(parts, step.known), tuple(pieces), step.depth, not step.is_value, is_count
        )
        self.join.follow_route(route)
        return route

    def tail_of(self, match: re.Match[bytes]) -> bytes:
        """Return the tail of the rows that follow from a matching source key, the same in all contexts.

        Requires:
            ``is_alike``.
        """
        return self._tail(match.groups())

    def within(self, first: bytes, last: bytes) -> Iterator[Context]:
        """Yield the contexts that wait for changes of keys in ``[first, last)``, some twice, perhaps with others.

        Requires:
            A database owns the source. The site is not changed while the iterator is live.

        Cost:
            O(length of ``first`` * log frames + contexts found).
        """
        if not self.is_ordered:
            # The keys of frames are plain keys, which say nothing of the table's own.
            for updaters in self._by_key.values():
                yield from updaters.contexts
            return
        # A frame whose source key is wholly known waits for its prefix alone; finding it as well does no harm.
        above = [first[:length] for length in range(len(first))]
        for start, stop in [*zip(above, [prefix + b"\0" for prefix in above], strict=True), (first, last)]:
            is_long = self.step.has_long_frame_keys
            low: FrameKey = (start,) if is_long else start
            high: FrameKey = (stop,) if is_long else stop
            for updaters in self.over(low, high):
                yield from updaters.contexts


class InstalledJoin(CompiledJoin):
    """A join that the engine computes.

    Invariants:
        1. ``contexts`` holds the live contexts of a push join by prefix, ``coverage`` the status ranges of all.
        2. ``sites[i]`` holds one site per plan in use, for source i; ``_sites_at`` the same by level.
        3. ``is_followed`` is true if and only if its table is watched or other joins read its outputs; ``is_quiet`` if
           and only if ``reads_unbacked`` is true and ``is_followed`` is not.
    """

    __slots__ = (
        "_kernels",
        "_sites_at",
        "contexts",
        "coverage",
        "downstreams",
        "indexes",
        "is_followed",
        "is_pull",
        "level_one_cut",
        "level_one_prefix",
        "outputs",
        "plans",
        "reads_base",
        "reads_unbacked",
        "rivals",
        "sites",
        "upstreams",
        "watches",
    )

    def __init__(
        self,
        info: JoinInfo,
        order: int,
        source_tables: list[Table],
        outputs: list[InstalledJoin],
        watches: WatchIndex,
        *,
        ledger: Ledger,
        priority: int,
    ) -> None:
        super().__init__(info, order, source_tables, watches, ledger, priority)
        spec = info.spec
        #: The joins that compute keys of the same table, this one included.
        self.outputs = outputs
        #: The watches of the output's table.
        self.watches = watches
        #: Whether changes of rows go to watches or to other joins.
        self.is_followed = False
        self.plans: dict[int, Plan] = {}
        self._sites_at: dict[int, list[Site]] = {}
        #: Those of the plans, by their levels, that contexts share.
        self._kernels: dict[int, NativeKernel] = {}
        self.sites: list[list[Site]] = [[] for _ in spec.sources]
        self.contexts: dict[bytes, Context] = {}
        self.coverage = Coverage()
        self.level_one_cut = level_one_of(spec)
        #: The prefix of a level-one context for the first key of a read, None if there is none.
        self.level_one_prefix = self.level_one_cut.cut
        #: For each source that looks at records: its index.
        self.indexes: list[Index | None] = [None] * len(spec.sources)
        #: For each source: the joins whose outputs it may read.
        self.upstreams: list[list[InstalledJoin]] = [[] for _ in spec.sources]
        #: Whether all sources are base data, of which it looks at keys alone: no join computes them.
        self.reads_base = False
        #: Whether clients write all of this base data: no database owns any of it.
        self.reads_unbacked = False
        #: What reads this join's outputs: sites, or projections (`TableReader`).
        self.downstreams: list[Iterable[Site]] = []
        #: Joins that may compute the same keys.
        self.rivals: list[InstalledJoin] = []
        #: Whether it is computed on every read: because it is declared so, or because a source is.
        self.is_pull = isinstance(spec.maintenance, Pull)

    def has_ranges(self, depth: int) -> bool:
        """Return whether ranges of a source's keys, plain ones if it sees records, may be loaded and forgotten."""
        index = self.indexes[depth]
        if index is not None:
            return index.searched is not None
        table = self.source_tables[depth]
        return table.presence is not None or table.is_kept

    @property
    def _is_kernel_quiet(self) -> bool:
        return self.reads_base and not self.is_followed

    def follow(self, *, is_followed: bool) -> None:
        """Set whether changes of rows go to watches or to other joins."""
        self.is_followed = is_followed
        self.is_quiet = self.reads_unbacked and not is_followed
        for kernel in self._kernels.values():
            kernel.is_quiet = self._is_kernel_quiet
        for sites in self.sites:
            for site in sites:
                site.told = self.told
                if site.route is not None:
                    self.follow_route(site.route)

    def follow_route(self, route: Route) -> None:
        """Say in a route of the join who is told of changes of rows."""
        route.is_followed = self.is_followed
        route.tells_watches, route.tells_joins = self.tells_watches, self.tells_joins

    @property
    def tells_watches(self) -> bool:
        """Whether watches are all who are told of changes of rows, and told each as it is."""
        return self.watches.count > 0 and not self.downstreams and not self.rivals and self.spec.keep is None

    @property
    def tells_joins(self) -> bool:
        """Whether other joins are all who are told of changes of rows, and told each as it is."""
        return bool(self.downstreams) and not self.watches.count and not self.rivals and self.spec.keep is None

    @property
    def told(self) -> tuple[Watch, ...] | None:
        """The watches that are told of changes of rows, if these are all who are told, and few."""
        return self.watches.few if self.tells_watches else None

    @property
    def is_push(self) -> bool:
        """Whether it is materialised and kept up to date by updaters."""
        return not self.is_pull and not isinstance(self.spec.maintenance, Snapshot)

    def count_computed(self, row_count: int, reads: Reads) -> None:
        """Count a range that a read had computed, and its rows."""
        self.counters.computed_ranges += 1
        self.counters.rows_computed += row_count
        reads.rows_computed += row_count

    def expires_s(self, now: float) -> float:
        """Return the time until which rows of a snapshot computed at ``now`` may be returned."""
        assert isinstance(self.spec.maintenance, Snapshot)
        return now + float(self.spec.maintenance.age_s)

    def level_one(self, first: bytes) -> Context | None:
        """Return the level-one context for a read from ``first`` on, if there is one."""
        prefix = self.level_one_prefix(first)
        return None if prefix is None else self.contexts.get(prefix)

    def holder(self, first: bytes, last: bytes) -> Context | None:
        """Return the context with a status range that holds all of ``[first, last)``, None if there is none.

        Cost:
            O(key length) for timelines and similar joins, else O(log ranges).
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
        if self.spec.keep is not None:
            # No context has a part of a group.
            del values[len(self.spec.keep.slots) :]
        plan = self.plans.get(len(values)) or self.plan_at(len(values))
        environment = plan.environment(values)
        return plan, environment, plan.prefix(environment)

    def plan_at(self, level: int) -> Plan:
        """Return the plan for reads that fix ``level`` slots; compile it the first time."""
        plan = self.plans.get(level)
        if plan is None:
            plan = self.plans[level] = Plan(self.plain, level, self.numbers, self.matchers, self.spec)
            self._sites_at[level] = [Site(self, plan, step) for step in plan.steps] if self.is_push else []
            for sites, site in zip(self.sites, self._sites_at[level], strict=False):
                sites.append(site)
            if plan.log_kernel is not None and self.is_push:
                kernel = make_kernel(plan.log_kernel, self.source_tables, self._sites_at[level])
                if kernel is not None:
                    kernel.is_quiet = self._is_kernel_quiet
                    self._kernels[level] = kernel
        return plan

    def open_plan(self, prefix: bytes, first: bytes, last: bytes) -> tuple[Plan, list[bytes]] | None:
        """Return what `plan_for` does for a read up to the end of a level-one prefix, in a quarter of its time.

        Args:
            prefix: `level_one_prefix` of ``first``.
            first: Where the read begins.
            last: Where it ends.

        Returns:
            None if the read is of another kind, or may fix more slots.
        """
        parts = self.spec.output.parts
        slot, follow = parts[1], parts[2]
        start, stop = len(parts[0]) if isinstance(parts[0], bytes) else 0, len(prefix)
        if not (isinstance(slot, Slot) and isinstance(follow, bytes) and start and prefix.endswith(follow, start)):
            return None
        value = prefix[start : stop - len(follow)]
        if (
            not value
            or last != prefix_end(prefix)
            or (slot.width is not None and len(value) != slot.width)
            # The highest bytes may fix a slot whose values go up to the end.
            or b"\xff" in first
        ):
            return None
        plan = self.plans.get(1) or self.plan_at(1)
        environment = plan.environment([value])
        return (plan, environment) if plan.prefix(environment) == prefix else None

    def sites_of(self, plan: Plan) -> list[Site]:
        """Return the sites of a plan's steps; none if the join keeps no updaters."""
        return self._sites_at[plan.level]

    def make_context(self, plan: Plan, environment: list[bytes], prefix: bytes) -> Context:
        """Return a new context, which no read finds yet."""
        kernel = self._kernels.get(plan.level)
        return Context(self, plan, self._sites_at[plan.level], kernel, environment, prefix)

    def clear_plans(self) -> None:
        """Forget all plans with their sites, since the join is going to be kept up to date in another way.

        Requires:
            Nothing is materialised.
        """
        self.plans.clear()
        self._sites_at.clear()
        self._kernels.clear()
        for sites in self.sites:
            sites.clear()

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
                assert site.told == self.told
                if (route := site.route) is not None:
                    assert (route.is_followed, route.tells_watches) == (self.is_followed, self.tells_watches)
                    assert route.tells_joins == self.tells_joins
        assert all(kernel.is_quiet == self._is_kernel_quiet for kernel in self._kernels.values())

    def _check_states(self, context: Context) -> None:
        results = {key: self.aggregate.result(state) for key, state in context.aggregate_states.items()}
        shown = {key: value for key, value in results.items() if value is not None}
        held = [context.rows, *(spare.rows for spare in (context.kept.spares.values() if context.kept else ()))]
        rows = {
            key: value for one in held for keys, values in one.leaves() for key, value in zip(keys, values, strict=True)
        }
        assert shown == rows, "context invariant 6"


def join_of(context: Context) -> InstalledJoin:
    """Return the installed join of a context, which itself knows only the compiled join."""
    join = context.join
    assert isinstance(join, InstalledJoin), "only installed joins have contexts"
    return join


def materialised_rows(joins: Iterable[InstalledJoin], first: bytes, last: bytes) -> dict[bytes, bytes]:
    """Return the materialised rows of ``[first, last)``; if two joins compute a key, the earlier join's value."""
    rows: dict[bytes, bytes] = {}
    for join in sorted(joins, key=lambda join: join.order, reverse=True):
        start, stop = join.clip(first, last)
        found = join.coverage.slice(start, stop) if start < stop else Rows([], [])
        rows.update(zip(found.keys, found.values, strict=True))
    return rows
