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

from pequod.engine.joins.capped import Cap
from pequod.engine.joins.timeline import compile_splice, compile_timeline
from pequod.language.containing import Containing
from pequod.language.patterns import Builder, Environment, Matcher, compile_builder, compile_matcher
from pequod.language.ranges import prefix_end
from pequod.language.slots import known_run
from pequod.language.spec import JoinSpec, Operator, Slot

#: The key by which the updaters of a source range are found: its known prefix, and known values after it.
FrameKey = bytes | tuple[bytes, ...]


class Step:
    """One source of a plan: the keys to read for an environment, and the slots that each key binds.

    Invariants:
        1. ``known`` slots are bound before the step, by the read or by earlier steps.
        2. Equal frame keys and extras mean equal values of all known slots: a frame stands for one tuple of keys of the
           earlier sources.
    """

    __slots__ = (
        "assign",
        "bindings",
        "containing",
        "depth",
        "extras",
        "frame_key",
        "frame_key_of",
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
        #: How tails are cut from keys, if cutting is enough; see `timeline`.
        self.splice = compile_splice(spec, depth, fixed, known, numbers)

    def _compile_frame_key(self) -> Callable[[bytes, Environment], FrameKey]:
        if not self.verify:
            return lambda prefix, _env: prefix
        wanted = [number for _, number in self.verify]
        return lambda prefix, env: (prefix, *[env[number] for number in wanted])

    def _compile_frame_key_of(
        self, parts: Sequence[bytes | Slot], run: int, groups: dict[str, int]
    ) -> Callable[[bytes, re.Match[bytes]], FrameKey]:
        """Compile the way back: from a source key and its match to its frame key."""
        if run == len(parts):
            return lambda key, _match: key
        unknown = parts[run]
        assert isinstance(unknown, Slot)
        group = groups[unknown.name] + 1
        if not self.verify:
            return lambda key, match: key[: match.start(group)]
        wanted = [number + 1 for number, _ in self.verify]
        return lambda key, match: (key[: match.start(group)], *[match.group(number) for number in wanted])


class Plan:
    """A join compiled for one level."""

    __slots__ = (
        "cap",
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
        self.cap = None if spec.keep is None else Cap(spec, level)
        self.value_depth = spec.value_depth
        #: Environment -> the key of the value source.
        self.value_key: Builder = compile_builder(spec.value_source.pattern.parts, numbers)
        source = (declared or spec).value_source
        #: The same for the table's own key, if the source sees its records: it decides which value a copy shows.
        self.own_key = compile_builder(source.pattern.parts, numbers) if source.has_records else None
        self.steps = [Step(spec, depth, numbers, set(names), matcher) for depth, matcher in enumerate(matchers)]
        #: Whether the last source is read from its end, or its beginning, as far as rows may be kept.
        self.reads_ends = self.cap is not None and self.cap.is_single and _is_in_order(spec, self.steps[-1])
        #: The kernel for timelines and similar joins; None for other joins.
        self.timeline = compile_timeline(spec, [step.known for step in self.steps], self.steps[-1].splice, numbers)
        #: The same if it can apply logs, else None.
        self.log_kernel = self.timeline if self.timeline is not None and self.timeline.applies_logs else None

    def environment(self, values: Sequence[bytes]) -> list[bytes]:
        """Return an environment with the values of the slots that reads fix, in output order."""
        environment = [b""] * self.env_size
        for number, value in zip(self.fixed, values, strict=True):
            environment[number] = value
        return environment

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

    def end_of(self, prefix: bytes) -> bytes:
        """Return the end of the range of the plan's output keys with this prefix."""
        end = prefix + b"\0" if self.is_point else prefix_end(prefix)
        assert end is not None, "a table name has an end"
        return end


def _is_in_order(spec: JoinSpec, last: Step) -> bool:
    """Return whether the keys of the last source, after what is known of them, are in the order of their rows."""
    if not (spec.is_unique and last.is_value) or last.is_point:
        return False
    pattern, output = spec.sources[-1].pattern.parts, spec.output.parts
    rest, run = pattern[known_run(pattern, last.known) :], known_run(output, last.known)
    behind = output[run + len(rest) :]
    if output[run : run + len(rest)] != rest or any(
        isinstance(part, Slot) and part.name in last.known for part in rest
    ):
        return False
    has_widths = all(isinstance(part, bytes) or part.width is not None for part in rest)
    return not behind or (has_widths and all(isinstance(part, bytes) or part.name in last.known for part in behind))


def _single_slot(rest: Sequence[bytes | Slot], numbers: dict[str, int]) -> tuple[int, int | None] | None:
    match rest:
        case (Slot(name, width),):
            return numbers[name], width
        case _:
            return None


def compile_matchers(spec: JoinSpec) -> list[Matcher]:
    """Compile the matchers of a join's sources, which all its plans share."""
    return [compile_matcher(source.pattern) for source in spec.sources]
