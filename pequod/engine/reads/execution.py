"""Forward execution of a plan: nested loops over source ranges (paper §3.1, figures 3 and 5).

An execution changes nothing: it collects its results in a batch. The batch is applied if all sources turn out to be
present and up to date; otherwise it is discarded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, Self, cast

from pequod.answers.rows import Rows
from pequod.engine.base.groups import Groups
from pequod.engine.joins.batches import Batch
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.plan import Plan
from pequod.engine.joins.timeline import Around, Timeline
from pequod.language.narrowing import Narrowed, relative
from pequod.language.spec import DELIMITER
from pequod.native import core

#: The number of contributions that are collected before memory is reserved for more. Tests make it small.
ROWS_AT_A_TIME = 8192


class Sources(Protocol):
    """Where an execution reads the sources of its join."""

    def read(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the rows that start with ``prefix`` and continue in ``[first, last)``."""

    def get(self, source: int, key: bytes) -> bytes | None:
        """Return the value of one source key, None if it is absent."""

    def groups(self, source: int, around: Around, prefixes: list[bytes], narrowed: Narrowed) -> Groups | None:
        """Return groups by their prefixes, those of some prefixes among them, unless they are empty.

        Args:
            source: The number of the source.
            around: The form of all the prefixes.
            prefixes: The known parts of keys of the source.
            narrowed: The part of each group that is read.

        Returns:
            None if the source is not a table of base data with such prefixes as groups: then `read` each.
        """

    def look_ahead(self, source: int, prefix: bytes, around: Around, narrowed: Narrowed) -> None:
        """Note which groups the execution reads next if a range is missing whose keys begin with a prefix.

        Args:
            source: The number of the next source.
            prefix: The known part of the keys that may be missing.
            around: The form of the groups' prefixes.
            narrowed: The part of each group.
        """

    def make_room(self, tails: list[bytes]) -> int:
        """Make room for contributions to rows with these tails; return how many there may be before the next call."""


class Frame(NamedTuple):
    """Nested loops stopped at a source, with the match of one of its keys.

    Of an `unless`, any of the keys that the frame waits for: what they have in common is known.
    """

    depth: int
    extras: tuple[bytes, ...] | None
    match: re.Match[bytes]
    #: The value of a key of the value source, from which the rows of the context were made.
    value_of: Callable[[bytes], bytes]


class Execution:
    """Nested loops over the sources of one plan, for output keys in ``[first, last)``.

    Args:
        environment: Has the plan's fixed slots; the execution may change it.
        is_unique: Whether contributions need no source keys.
        has_frames: Whether frames are noted in the batch.
    """

    __slots__ = (
        "_batch",
        "_env",
        "_first",
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
        #: For each depth: the narrowing of containing ranges, once it is known to be the same for all of them.
        self._narrowed: list[Narrowed | object | None] = [_UNKNOWN] * len(plan.steps)
        #: The number of contributions to collect before memory is reserved for more.
        self._room = ROWS_AT_A_TIME
        self._source_key = b""
        self._value = b""

    @classmethod
    def of(cls, context: Context, first: bytes, last: bytes, sources: Sources) -> Self:
        """Return the loops for a range of a context."""
        join, plan = context.join, context.plan
        environment = context.environment.copy()
        has_frames = bool(context.frames)
        return cls(plan, environment, first, last, sources, is_unique=join.is_unique, has_frames=has_frames)

    def run(self) -> Batch:
        """Return all contributions to the range.

        Cost:
            O(keys in the containing ranges).
        """
        self._batch = Batch(self._last_depth + 1)
        self._descend(0)
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
        rows = self._sources.read(depth, prefix, lower, upper)
        if not rows.keys:
            if (timeline := self._plan.timeline) is not None and depth == timeline.depth:
                self._look_ahead(timeline, prefix)
            return
        if step.splice is not None:
            batch = self._batch
            found = Rows(batch.tails, batch.values)
            step.splice.copy(env, len(prefix), rows, self._lower, self._upper, found)
            if len(batch.tails) > self._room:
                self._room = self._sources.make_room(batch.tails)
        else:
            self._loop(depth, len(prefix), rows)

    def _note_frame(self, depth: int, prefix: bytes) -> None:
        step, env = self._plan.steps[depth], self._env
        self._batch.frame_keys[depth].append(step.frame_key(prefix, env))
        if step.extras:
            self._batch.extras[depth].append(tuple([env[number] for number in step.extras]))

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
        bounds, prefixes = timeline.select(rows.keys, known)
        groups = self._sources.groups(copied, timeline.around, prefixes, narrowed)
        if groups is None:
            return False
        batch = self._batch
        batch.frame_keys[copied] += prefixes
        done, found = 0, Rows(batch.tails, batch.values)
        while True:
            done = timeline.fill(
                self._env,
                done,
                bounds,
                prefixes,
                groups,
                narrowed,
                self._lower,
                self._upper,
                self._room,
                found,
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
            self._batch.values.append(self._value)
            if len(self._batch.tails) > self._room:
                self._room = self._sources.make_room(self._batch.tails)


_UNKNOWN: Final = object()
