"""Forward execution of a plan: nested loops over source ranges (paper §3.1, figures 3 and 5).

An execution changes nothing: it collects its results in a batch. The batch is applied if all sources turn out to be
present and up to date; otherwise it is discarded.
"""

from __future__ import annotations

from typing import Any, Final, Self, cast

from pequod.answers.rows import Rows
from pequod.engine.joins.batches import Batch, Frame
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.plan import Plan, Step
from pequod.engine.joins.timeline import Timeline
from pequod.engine.reads.asked import Sources
from pequod.language.narrowing import Narrowed, relative
from pequod.language.spec import DELIMITER
from pequod.native import core

#: The number of contributions that are collected before memory is reserved for more. Tests make it small.
ROWS_AT_A_TIME = 8192
#: How many rows are read first at each end of the last source, where some rows are enough; and by how much more later.
_END_ROWS: Final = 8
_FASTER: Final = 4


class Execution:
    """Nested loops over the sources of one plan, for output keys in ``[first, last)``.

    Args:
        environment: Has the plan's fixed slots; the execution may change it.
        is_unique: Whether contributions need no source keys.
        has_frames: Whether frames are noted in the batch.
        wanted: How many rows are enough, the innermost ones; None: all rows are wanted.
        edge: Rows beyond this tail are not wanted.

    Requires:
        ``wanted`` and ``edge`` are for plans that read the ends of the last source.
    """

    __slots__ = (
        "_batch",
        "_edge",
        "_end_rows",
        "_ends",
        "_env",
        "_first",
        "_gathered",
        "_has_frames",
        "_is_unique",
        "_last",
        "_last_depth",
        "_lower",
        "_narrowed",
        "_plan",
        "_room",
        "_source_key",
        "_sources",
        "_upper",
        "_value",
        "_wanted",
    )

    def __init__(
        self,
        plan: Plan,
        environment: list[bytes],
        first: bytes,
        last: bytes,
        sources: Sources,
        *,
        is_unique: bool,
        has_frames: bool,
        wanted: int | None = None,
        edge: bytes | None = None,
    ) -> None:
        self._plan = plan
        self._env = environment
        self._first = first
        self._last = last
        bounds = relative(plan.prefix(environment), first, last)
        #: The same bounds on tails; if there are no keys between them, steps read nothing.
        self._lower, self._upper = bounds or (b"", b"")
        self._sources = sources
        self._is_unique = is_unique
        self._has_frames = has_frames
        self._last_depth = len(plan.steps) - 1
        #: What was read of gathered steps; None: their keys are read one by one, since few rows are looked at.
        self._gathered: dict[int, set[Any]] | None = {}
        #: For each depth: the narrowing of containing ranges, once it is known to be the same for all of them.
        self._narrowed: list[Narrowed | object | None] = [_UNKNOWN] * len(plan.steps)
        #: The number of contributions to collect before memory is reserved for more.
        self._room = ROWS_AT_A_TIME
        self._source_key = b""
        self._value = b""
        self._wanted = wanted
        #: Rows beyond it are left out by the bounds on tails.
        self._edge: bytes | None = None
        #: How many rows are read at an end of the last source, and where there are more of them.
        self._end_rows = _END_ROWS
        self._ends: list[tuple[list[bytes], bytes, bytes, bytes | None]] = []
        if edge is not None:
            self._leave_out(edge)

    @classmethod
    def of(
        cls,
        context: Context,
        first: bytes,
        last: bytes,
        sources: Sources,
        *,
        wanted: int | None = None,
        edge: bytes | None = None,
    ) -> Self:
        """Return the loops for a range of a context."""
        return cls(
            context.plan,
            context.environment.copy(),
            first,
            last,
            sources,
            is_unique=context.join.is_unique,
            has_frames=bool(context.frames),
            wanted=wanted,
            edge=edge,
        )

    def run(self) -> Batch:
        """Return all contributions to the range.

        Cost:
            O(keys in the containing ranges).
        """
        self._batch = Batch(self._last_depth + 1)
        for step in self._plan.steps:
            if step.gathered is not None:
                self._batch.frame_keys[step.depth].append(step.gathered.prefix(self._env))
                self._gather(step)  # Now: what is not loaded is missed together with the first source's keys.
        self._descend(0)
        if self._wanted is not None:
            self._take_further()
        return self._batch

    def resume(self, frame: Frame, key: bytes, value: bytes) -> Batch:
        """Return the contributions of one source key at a frame where the loops were stopped.

        At the frame of an `unless`, those that there are while no key is there, whatever ``key`` and ``value`` are.
        """
        self._stop_at(frame)
        self._choose(frame.depth, key, value)
        return self._batch

    def present(self, frame: Frame) -> list[bytes]:
        """Return the keys that the frame of an `unless` waits for and that are there."""
        self._stop_at(frame)
        return self._present(frame.depth)

    def _stop_at(self, frame: Frame) -> None:
        self._batch = Batch(self._last_depth + 1)
        step = self._plan.steps[frame.depth]
        if frame.depth >= self._plan.value_depth:
            self._gathered = None
        if frame.extras is not None:
            for number, known in zip(step.extras, frame.extras, strict=True):
                self._env[number] = known
        groups = frame.match.groups()
        for group, number in step.bindings:
            self._env[number] = groups[group]
        if frame.depth > self._plan.value_depth:
            self._source_key = self._plan.value_key(self._env)
            self._value = frame.value_of(self._source_key)

    def _descend(self, depth: int) -> None:
        step = self._plan.steps[depth]
        env = self._env
        if self._gathered is not None and step.gathered is not None:
            if (step.gathered.of_row(env) in self._gather(step)) is not step.is_absence:
                self._choose(depth, b"", b"")
            return
        if step.is_absence:
            self._pass(depth)
            return
        if step.is_point and not self._has_frames:
            # A look-up instead of a scan, if no frame has to be noted (bench row: pull, celebrity).
            key = step.prefix(env)
            value = self._sources.get(depth, key)
            if value is not None and step.match(key) is not None:
                self._choose(depth, key, value)
            return
        narrowed = self._narrowed[depth]
        if narrowed is _UNKNOWN:
            narrowed, is_steady = step.containing.narrow(env, self._first, self._last)
            if is_steady:
                self._narrowed[depth] = narrowed
        if narrowed is None:
            return
        lower, upper = (b"", b"\0") if step.is_point else cast("Narrowed", narrowed)
        prefix = step.prefix(env)
        self._note_frame(depth, prefix)
        if step.is_value and (self._wanted is not None or self._edge is not None):
            self._take_end(step, prefix, lower, upper)
            return
        rows = self._sources.read(depth, prefix, lower, upper)
        if not rows.keys:
            if (timeline := self._plan.timeline) is not None and depth == timeline.depth:
                self._look_ahead(timeline, prefix)
            return
        self._take(step, len(prefix), rows)

    def _take(self, step: Step, known: int, rows: Rows) -> None:
        if step.splice is not None:
            batch = self._batch
            found = Rows(batch.tails, batch.values)
            step.splice.copy(self._env, known, rows, self._lower, self._upper, found)
            if len(batch.tails) > self._room:
                self._room = self._sources.make_room(batch.tails)
        else:
            self._loop(step.depth, known, rows)

    def _take_end(self, step: Step, prefix: bytes, lower: bytes, upper: bytes | None) -> None:
        """Take the rows of the last source, which are in the order of their tails, as far as they may be wanted."""
        cap, wanted = self._plan.cap, self._wanted
        assert cap is not None
        if self._edge is not None:
            edge = self._plan.prefix(self._env) + self._edge
            bounds = (edge, self._last) if cap.is_last else (self._first, edge + b"\0")
            narrowed, _ = step.containing.narrow(self._env, *bounds)
            if narrowed is None:
                return
            lower = max(lower, narrowed.first)
            upper = narrowed.last if upper is None else upper if narrowed.last is None else min(upper, narrowed.last)
        count = None if wanted is None else min(wanted, self._end_rows)
        rows = self._sources.read_end(step.depth, prefix, lower, upper, count, is_last=cap.is_last)
        if not rows.keys:
            return
        self._take(step, len(prefix), rows)
        if count is not None and len(rows.keys) == count:
            if cap.is_last:
                upper = rows.keys[0][len(prefix) :]
            else:
                lower = rows.keys[-1][len(prefix) :] + b"\0"
            self._ends.append((self._env.copy(), prefix, lower, upper))

    def _take_further(self) -> None:
        """Read on where rows may be wanted: first a few rows at each end, then more, until there are enough."""
        step = self._plan.steps[self._plan.value_depth]
        self._select()
        while self._ends:
            ends, self._ends = self._ends, []
            self._end_rows *= _FASTER
            for env, prefix, lower, upper in ends:
                self._env[:] = env
                self._take_end(step, prefix, lower, upper)
            self._select()

    def _select(self) -> None:
        """Leave only the innermost rows in the batch if they are enough; those beyond are not wanted any more."""
        batch, cap, wanted = self._batch, self._plan.cap, self._wanted
        assert cap is not None
        if wanted is None or len(batch.tails) < wanted:
            return
        batch.is_all = False
        found = sorted(zip(batch.tails, batch.values, strict=True), reverse=cap.is_last)[:wanted]
        batch.tails, batch.values = [tail for tail, _ in found], [value for _, value in found]
        self._leave_out(batch.tails[-1])

    def _leave_out(self, edge: bytes) -> None:
        cap = self._plan.cap
        assert cap is not None
        self._edge = edge
        if cap.is_last:
            self._lower = max(self._lower, edge)
        else:
            self._upper = edge + b"\0" if self._upper is None else min(self._upper, edge + b"\0")

    def _note_frame(self, depth: int, prefix: bytes) -> None:
        step, env = self._plan.steps[depth], self._env
        if step.gathered is not None:
            return  # Its one frame is noted by `run`.
        self._batch.frame_keys[depth].append(step.frame_key(prefix, env))
        if step.extras:
            self._batch.extras[depth].append(tuple([env[number] for number in step.extras]))

    def _gather(self, step: Step) -> set[Any]:
        """Return what the keys of a gathered step have, of the slots that rows have."""
        known, gathered = self._gathered, step.gathered
        assert known is not None
        assert gathered is not None
        if step.depth not in known:
            rows = self._sources.read(step.depth, gathered.prefix(self._env), b"", gathered.last)
            matches = map(step.match, rows.keys)
            known[step.depth] = {gathered.of_key(match.groups()) for match in matches if match is not None}
        return known[step.depth]

    def _pass(self, depth: int) -> None:
        """Go on if no key is there that must not be."""
        if self._has_frames:
            self._note_frame(depth, self._plan.steps[depth].prefix(self._env))
        if not self._present(depth):
            self._choose(depth, b"", b"")

    def _present(self, depth: int) -> list[bytes]:
        """Return the keys of an `unless` that are there, for the slots so far."""
        step, env = self._plan.steps[depth], self._env
        prefix = step.prefix(env)
        if step.is_point and not self._has_frames:
            is_there = self._sources.get(depth, prefix) is not None and step.match(prefix) is not None
            return [prefix] if is_there else []
        rows = self._sources.read(depth, prefix, b"", b"\0" if step.is_point else None)
        wanted = [(group + 1, env[number]) for group, number in step.verify]
        matches = [match for key in rows.keys if (match := step.match(key)) is not None]
        return [match.string for match in matches if all(match[group] == value for group, value in wanted)]

    def _look_ahead(self, timeline: Timeline, prefix: bytes) -> None:
        """Say which groups keys of the timeline's check lead to, in case they are missing."""
        copied = timeline.depth + 1
        narrowed, is_steady = self._plan.steps[copied].containing.narrow(self._env, self._first, self._last)
        if narrowed is not None and is_steady:
            self._sources.look_ahead(copied, prefix, timeline.around, narrowed)

    def _loop(self, depth: int, known: int, rows: Rows) -> None:
        step = self._plan.steps[depth]
        env = self._env
        timeline = self._plan.timeline
        if core is not None and timeline is not None and depth == timeline.depth and self._fill(timeline, known, rows):
            return
        if step.single is not None:
            number, width = step.single
            for key, value in zip(rows.keys, rows.values, strict=True):
                bound = key[known:]
                if len(bound) == width or (width is None and bound and DELIMITER not in bound):
                    env[number] = bound
                    self._choose(depth, key, value)
            return
        match_key, assign, verify = step.match, step.assign, step.verify
        for key, value in zip(rows.keys, rows.values, strict=True):
            match = match_key(key)
            if match is None:
                continue
            groups = match.groups()
            if verify and any(groups[group] != env[number] for group, number in verify):
                continue
            for group, number in assign:
                env[number] = groups[group]
            self._choose(depth, key, value)

    def _fill(self, timeline: Timeline, known: int, rows: Rows) -> bool:
        """Do the work of `_loop`, `_choose` and `_descend` by the timeline's kernel; return False if it cannot do it.

        It is 2.5 times faster for each subscription (bench row: check, first, loaded).
        """
        copied = timeline.depth + 1
        narrowed, is_steady = self._plan.steps[copied].containing.narrow(self._env, self._first, self._last)
        if narrowed is None or not is_steady:
            return False
        if self._plan.cap is not None and (self._wanted is None or self._edge or self._upper or narrowed.last):
            return False  # Some rows at the very end are not what is wanted.
        bounds, prefixes = timeline.select(rows.keys, known)
        groups = self._sources.groups(copied, timeline.around, prefixes, narrowed)
        if groups is None:
            return False
        batch = self._batch
        batch.frame_keys[copied] += prefixes
        if self._wanted is not None and narrowed.first == self._lower:
            since = timeline.newest_from(prefixes, groups, narrowed.first, self._wanted)
            narrowed = narrowed if since is None else Narrowed(since, None)
        done, found = 0, Rows(batch.tails, batch.values)
        while True:
            done = timeline.fill(
                self._env, done, bounds, prefixes, groups, narrowed, self._lower, self._upper, self._room, found
            )
            if len(batch.tails) > self._room:
                self._room = self._sources.make_room(batch.tails)
            if done == len(prefixes):
                return True

    def _choose(self, depth: int, key: bytes, value: bytes) -> None:
        if self._plan.steps[depth].is_value:
            self._source_key, self._value = key, value
        if depth < self._last_depth:
            self._descend(depth + 1)
            return
        tail = self._plan.tail(self._env)
        if self._lower <= tail and (self._upper is None or tail < self._upper):
            self._batch.tails.append(tail)
            if not self._is_unique:
                own_key = self._plan.own_key
                self._batch.source_keys.append(self._source_key if own_key is None else own_key(self._env))
            compose = self._plan.compose
            self._batch.values.append(self._value if compose is None else compose(self._env, self._value))
            if len(self._batch.tails) > self._room:
                self._room = self._sources.make_room(self._batch.tails)


_UNKNOWN: Final = object()
