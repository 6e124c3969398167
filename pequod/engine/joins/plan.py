"""Plans: a join compiled for reads that fix its first slots (paper §3.1, slot sets and containing ranges).

    output   t|<user>|<time:10>|<poster>      a scan of t|ann| fixes one slot: level 1, prefix t|ann|
    step 0   check s|<user>|<poster>          reads s|ann|           binds poster
    step 1   copy  p|<poster>|<time:10>       reads p|bob|100..      binds time, yields t|ann|100|bob

A level is the number of the output's slots, from the left, that a read fixes; there is one plan for each level in use.
Everything is decided here once: a step's functions take an environment (slot values by number) and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from pequod.engine.joins.capped import Cap
from pequod.engine.joins.timeline import Timeline, compile_splice, compile_timeline
from pequod.language.composing import Compose, compile_composition
from pequod.language.containing import Containing
from pequod.language.patterns import Builder, Environment, Matcher, compile_builder, compile_matcher
from pequod.language.ranges import prefix_end
from pequod.language.slots import known_run
from pequod.language.spec import JoinSpec, Operator, Slot

#: The key by which the updaters of a source range are found: its known prefix, and known values after it.
FrameKey = bytes | tuple[bytes, ...]


class Gathered(NamedTuple):
    """How a source is read whose keys only say which rows of a group are there: those of a context at once.

    copy p|<poster>|<time:10>|<to>  check s|<user>|<to>      s|ann| is read, and <to> of each row looked for in it
    """

    #: Environment -> the source key up to its first slot that the read does not fix.
    prefix: Builder
    #: Where the keys end behind it: at once if it is the whole key, None: at the end of those that begin with it.
    last: bytes | None
    #: The groups of a matching key -> its values of the slots that rows have.
    of_key: Callable[[Sequence[bytes]], Any]
    #: Environment -> the same of a row.
    of_row: Callable[[Environment], Any]


class Step:
    """One source of a plan: the keys to read for an environment, and the slots that each key binds.

    Invariants:
        1. ``known`` slots are bound before the step, by the read or by earlier steps.
        2. Equal frame keys and extras mean equal values of all known slots: a frame stands for one tuple of keys of the
           earlier sources. That of a gathered step stands for all of a context.
    """

    __slots__ = (
        "assign",
        "bindings",
        "containing",
        "depth",
        "extras",
        "frame_key",
        "frame_key_of",
        "gathered",
        "is_absence",
        "is_point",
        "is_value",
        "known",
        "match",
        "operator",
        "prefix",
        "single",
        "splice",
        "verify",
    )

    def __init__(self, spec: JoinSpec, depth: int, numbers: dict[str, int], fixed: set[str], matcher: Matcher) -> None:
        source = spec.sources[depth]
        parts = source.pattern.parts
        known = fixed.union(*({slot.name for slot in earlier.bound()} for earlier in spec.sources[:depth]))
        self.depth = depth
        self.operator = source.operator
        self.is_value = source.operator.gives_value
        #: Whether no key may match, for the loops to go on.
        self.is_absence = source.operator is Operator.UNLESS
        self.match = matcher.match
        run = known_run(parts, known)
        #: Environment -> the source key up to its first unknown slot.
        self.prefix: Builder = compile_builder(parts[:run], numbers)
        #: Whether the whole source key is known.
        self.is_point = run == len(parts)
        groups = {name: number for number, name in enumerate(matcher.names)}
        #: (group, slot): the slots that a matching key binds, and those that it must equal beyond its known prefix.
        self.assign = [(groups[name], numbers[name]) for name in matcher.names if name not in known]
        #: (group, slot) of all slots of a key.
        self.bindings = [(groups[name], numbers[name]) for name in matcher.names]
        leading = {part.name for part in parts[:run] if isinstance(part, Slot)}
        trailing = [name for name in matcher.names if name in known and name not in leading]
        self.verify = [(groups[name], numbers[name]) for name in trailing]
        #: Slots that earlier steps bind and that are not in this source's keys.
        self.extras = [
            number for name, number in numbers.items() if name in known - fixed and name not in matcher.names
        ]
        self.frame_key = self._compile_frame_key()
        self.frame_key_of = self._compile_frame_key_of(parts, run, groups)
        #: (slot, width) if the key has exactly one slot, and nothing else, beyond its known prefix.
        self.single = _single_slot(parts[run:], numbers)
        self.containing = Containing(spec.output.parts, parts[run:], numbers, known, fixed)
        self.known = known
        #: How the keys of a context are read at once, if only `Plan.reads_ends` has them do so.
        self.gathered: Gathered | None = None
        #: How tails are cut from keys, if cutting is enough; see `timeline`.
        self.splice = compile_splice(spec, depth, fixed, known, numbers)

    @property
    def has_long_frame_keys(self) -> bool:
        """Whether frame keys have values beside the prefix."""
        return bool(self.verify) and self.gathered is None

    def can_gather(self, parts: Sequence[bytes | Slot], fixed: set[str]) -> bool:
        """Return whether the step binds nothing, and all its keys of a context begin with what the read fixes."""
        run = known_run(parts, fixed)
        return (self.is_absence or not self.assign) and (
            run == len(parts) or any(isinstance(part, Slot) for part in parts[:run])
        )

    def gather(self, parts: Sequence[bytes | Slot], numbers: dict[str, int], fixed: set[str]) -> None:
        """Have the keys of a context read at once, and one frame wait for all of them.

        Args:
            parts: Those of the source's pattern.
            numbers: The numbers of the slots.
            fixed: The slots that reads fix.

        Requires:
            `can_gather`.
        """
        run = known_run(parts, fixed)
        leading = {numbers[part.name] for part in parts[:run] if isinstance(part, Slot)}
        sought = {numbers[name] for name in self.known} - leading
        places = [(group, number) for group, number in self.bindings if number in sought]
        of_key, of_row = _picker([group for group, _ in places]), _picker([number for _, number in places])
        last = b"\0" if run == len(parts) else None
        self.gathered = Gathered(compile_builder(parts[:run], numbers), last, of_key, of_row)
        self.extras = []
        by_number = {number: group for group, number in self.bindings}
        groups = {part.name: by_number[numbers[part.name]] for part in parts if isinstance(part, Slot)}
        self.frame_key_of = _cut_at(parts, run, groups)

    def _compile_frame_key(self) -> Callable[[bytes, Environment], FrameKey]:
        if not self.verify:
            return lambda prefix, _env: prefix
        wanted = [number for _, number in self.verify]
        return lambda prefix, env: (prefix, *[env[number] for number in wanted])

    def _compile_frame_key_of(
        self, parts: Sequence[bytes | Slot], run: int, groups: dict[str, int]
    ) -> Callable[[bytes, re.Match[bytes]], FrameKey]:
        """Compile the way back: from a source key and its match to its frame key."""
        cut = _cut_at(parts, run, groups)
        if run == len(parts) or not self.verify:
            return cut
        wanted = [number + 1 for number, _ in self.verify]
        return lambda key, match: (cut(key, match), *[match.group(number) for number in wanted])


class Plan:
    """A join compiled for one level."""

    __slots__ = (
        "cap",
        "compose",
        "env_size",
        "fixed",
        "is_point",
        "level",
        "log_kernel",
        "own_key",
        "prefix",
        "reads_ends",
        "steps",
        "tail",
        "tail_parts",
        "tail_slots",
        "timeline",
        "value_depth",
        "value_key",
    )

    def __init__(
        self,
        spec: JoinSpec,
        level: int,
        numbers: dict[str, int],
        matchers: Sequence[Matcher],
        declared: JoinSpec | None = None,
    ) -> None:
        names = list(dict.fromkeys(slot.name for slot in spec.output.slots()))[:level]
        self.level = level
        #: The numbers of the slots that the read fixes, in output order.
        self.fixed = [numbers[name] for name in names]
        self.env_size = len(numbers)
        run = known_run(spec.output.parts, set(names))
        #: Environment -> the output key up to its first slot that is not fixed.
        self.prefix: Builder = compile_builder(spec.output.parts[:run], numbers)
        #: Whether the read fixes the whole output key.
        self.is_point = run == len(spec.output.parts)
        #: Environment -> the rest of the output key, the tail under which rows are kept.
        self.tail_parts = spec.output.parts[run:]
        self.tail: Builder = compile_builder(self.tail_parts, numbers)
        #: The slots in that rest.
        self.tail_slots = {numbers[part.name] for part in self.tail_parts if isinstance(part, Slot)}
        #: Which rows of its contexts there are; None: all of them.
        self.cap = None if spec.keep is None else Cap(declared or spec, level)
        self.value_depth = spec.value_depth
        #: Environment -> the key of the value source.
        self.value_key: Builder = compile_builder(spec.value_source.pattern.parts, numbers)
        #: (environment, what the value source gives) -> the value; None: it is that.
        self.compose: Compose | None = compile_composition(declared or spec, numbers)
        source = (declared or spec).value_source
        #: The same for the table's own key, if the source sees its records: it decides which value a copy shows.
        self.own_key = compile_builder(source.pattern.parts, numbers) if source.has_records else None
        self.steps = [Step(spec, depth, numbers, set(names), matcher) for depth, matcher in enumerate(matchers)]
        #: Whether the value source is read from its end, or its beginning, as far as rows may be kept. The sources
        #: behind it are gathered: a change of their keys has the few rows of a group computed again.
        self.reads_ends = self.cap is not None and self.cap.is_single and self._gather(spec, numbers, set(names))
        #: The kernel for timelines and similar joins; None for other joins.
        self.timeline = compile_timeline(spec, [step.known for step in self.steps], self.steps[-1].splice, numbers)
        if self.cap is not None and not (self.reads_ends and self.cap.is_last):
            self.timeline = None
        #: The same if it can apply logs, else None.
        self.log_kernel = None if self.cap is not None or not _applies_logs(self.timeline) else self.timeline

    def _gather(self, spec: JoinSpec, numbers: dict[str, int], fixed: set[str]) -> bool:
        deciding = [(step, spec.sources[step.depth].pattern.parts) for step in self.steps[self.value_depth + 1 :]]
        if not _is_in_order(spec, self.steps[self.value_depth]):
            return False
        if not all(step.can_gather(parts, fixed) for step, parts in deciding):
            return False
        for step, parts in deciding:
            step.gather(parts, numbers, fixed)
        return True

    def environment(self, values: Sequence[bytes]) -> list[bytes]:
        """Return an environment with the values of the slots that reads fix, in output order."""
        environment = [b""] * self.env_size
        for number, value in zip(self.fixed, values, strict=True):
            environment[number] = value
        return environment

    def value_bytes(self, values: Sequence[bytes]) -> int:
        """Return the bytes of a row's value that only the row holds, by two that stand for all: none of a copy's."""
        return (len(values[0]) + len(values[-1])) // 2 if self.compose is not None and values else 0

    def widen(self, first: bytes, last: bytes, prefix: bytes) -> tuple[bytes, bytes]:
        """Return the range to compute for a read of ``[first, last)``: where some rows are kept, that of whole groups.

        Args:
            first: Where the read begins.
            last: Where it ends.
            prefix: The plan's, for the slots that the read fixes.
        """
        if self.cap is None:
            return first, last
        first, last = max(first, prefix), min(last, self.end_of(prefix))
        return self.cap.widen(first, last) if first < last else (first, last)

    def needed(self, first: bytes, last: bytes, prefix: bytes) -> tuple[bytes, bytes]:
        """Return the range of the rows that say which ones a read of ``[first, last)`` sees.

        Of `keep last`, a row needs those behind it and none before it; see `widen`.
        """
        widened = self.widen(first, last, prefix)
        return (max(first, widened[0]), widened[1]) if self.cap is not None and self.cap.is_last else widened

    def end_of(self, prefix: bytes) -> bytes:
        """Return the end of the range of the plan's output keys with this prefix."""
        end = prefix + b"\0" if self.is_point else prefix_end(prefix)
        assert end is not None, "a table name has an end"
        return end


def _applies_logs(timeline: Timeline | None) -> bool:
    return timeline is not None and timeline.applies_logs


def _is_in_order(spec: JoinSpec, copied: Step) -> bool:
    """Return whether the keys of the value source, after what is known of them, are in the order of their rows."""
    if not spec.is_unique or copied.is_point:
        return False
    pattern, output = spec.value_source.pattern.parts, spec.output.parts
    rest, run = pattern[known_run(pattern, copied.known) :], known_run(output, copied.known)
    behind = output[run + len(rest) :]
    if output[run : run + len(rest)] != rest or any(
        isinstance(part, Slot) and part.name in copied.known for part in rest
    ):
        return False
    has_widths = all(isinstance(part, bytes) or part.width is not None for part in rest)
    return not behind or (has_widths and all(isinstance(part, bytes) or part.name in copied.known for part in behind))


def _cut_at(
    parts: Sequence[bytes | Slot], run: int, groups: dict[str, int]
) -> Callable[[bytes, re.Match[bytes]], bytes]:
    """Return what cuts a key before one of its pattern's parts."""
    if run == len(parts):
        return lambda key, _match: key
    unknown = parts[run]
    assert isinstance(unknown, Slot)
    group = groups[unknown.name] + 1
    return lambda key, match: key[: match.start(group)]


def _picker(places: Sequence[int]) -> Callable[[Sequence[bytes]], Any]:
    """Return what picks the values at some places: one as it is, several as a tuple."""
    return itemgetter(*places) if places else lambda _values: ()


def _single_slot(rest: Sequence[bytes | Slot], numbers: dict[str, int]) -> tuple[int, int | None] | None:
    match rest:
        case (Slot(name, width),):
            return numbers[name], width
        case _:
            return None


def compile_matchers(spec: JoinSpec) -> list[Matcher]:
    """Compile the matchers of a join's sources, which all its plans share."""
    return [compile_matcher(source.pattern) for source in spec.sources]
