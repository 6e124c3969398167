"""The timeline's kernel: a short way for joins that copy the rows that the keys of one check select, natively.

    t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10>

    fill    [t|ann|100, t|ann})        for s|ann|bob, s|ann|liz: the groups p|bob|, p|liz| from 100 on, cut into tails
    apply   the log of t|ann|          s|ann|eve was added: her posts are added; s|ann|bob was removed: his go
            the write of p|bob|120     appended to every timeline that waits at p|bob|

The core does what `Execution` (fill), `differences` with `Writer.apply` (a log), and `Writer._update` (a write) do for
any join, in a tenth to a half of the time; without it, these do it. Whether a join is of this kind is decided here,
when its plan is compiled: `compile_splice`, `compile_timeline`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pequod.answers.rows import Rows
from pequod.engine.base.groups import Groups
from pequod.engine.base.table import Table
from pequod.engine.joins.materialised import Materialised
from pequod.language.narrowing import Narrowed
from pequod.language.patterns import Builder, Environment, compile_builder
from pequod.language.ranges import prefix_end
from pequod.language.slots import known_run
from pequod.language.spec import JoinSpec, Operator, Slot
from pequod.native import Route, core

#: Plans that are compiled while this is false have no kernel.
is_on = True


@contextmanager
def general_way() -> Iterator[None]:
    """Compile plans without the kernel in this context, for benchmarks that say what it gives.

    A plan is compiled by the first read of its kind, not when its join is installed.
    """
    global is_on  # noqa: PLW0603 -- one switch for all engines of the process
    before, is_on = is_on, False
    try:
        yield
    finally:
        is_on = before


class HasContexts(Protocol):
    """Where contexts wait: `Updaters`."""

    @property
    def contexts(self) -> Collection[Materialised]:
        """The waiting contexts."""


class Splice(NamedTuple):
    """How tails of rows are cut from whole keys of the value source: ``head + key[known:] + tail``."""

    head: Builder
    #: The length of the key beyond its known prefix: fixed-width slots only, so order is kept.
    width: int
    tail: Builder
    #: Whether the head is empty: tails begin with the part of the key.
    is_headless: bool
    #: What head and tail are built of: literals, and numbers of slots.
    head_parts: tuple[bytes | int, ...]
    tail_parts: tuple[bytes | int, ...]

    def copy(self, env: Environment, known: int, rows: Rows, lower: bytes, upper: bytes | None, copied: Rows) -> None:
        """Add rows with tails within bounds to ``copied``; ``known`` is the length of their keys' known prefix."""
        head, tail, size = self.head(env), self.tail(env), known + self.width
        keys, values = rows
        tails: list[bytes] = []
        for key in keys:
            # Most posters have a few posts: the call of a comprehension would be 7 % of a first check.
            if len(key) == size:
                tails.append(head + key[known:] + tail)  # noqa: PERF401
        if len(tails) < len(values):
            values = [value for key, value in zip(keys, values, strict=True) if len(key) == size]
        if tails and (tails[0] < lower or (upper is not None and tails[-1] >= upper)):
            within = [lower <= tail and (upper is None or tail < upper) for tail in tails]
            values = [value for value, is_within in zip(values, within, strict=True) if is_within]
            tails = [tail for tail, is_within in zip(tails, within, strict=True) if is_within]
        # Unpacked, since attributes of a tuple are slow: this runs once for each poster with new posts.
        copied_keys, copied_values = copied
        copied_keys += tails
        copied_values += values


def compile_splice(
    spec: JoinSpec, depth: int, fixed: set[str], known: set[str], numbers: dict[str, int]
) -> Splice | None:
    """Return how to cut tails from the keys of a source; None if cutting is not enough.

    Args:
        spec: The join.
        depth: The number of the source.
        fixed: The slots that reads fix.
        known: The slots that are known before the source is read.
        numbers: The numbers of the slots.
    """
    output, parts = spec.output.parts, spec.sources[depth].pattern.parts
    source = parts[known_run(parts, known) :]
    start, run = known_run(output, fixed), known_run(output, known)
    after = run + len(source)
    widths = [part.width if isinstance(part, Slot) else None for part in source]
    rest_is_known = all(isinstance(part, bytes) or part.name in known for part in output[after:])
    is_repeated = len(set(source)) < len(source)
    is_bound = any(isinstance(part, Slot) and part.name in known for part in source)
    if not is_on or not spec.is_unique or spec.sources[depth].operator is not Operator.COPY:
        return None
    if (
        depth < len(spec.sources) - 1
        or not source
        or None in widths
        or is_repeated
        or is_bound
        or output[run:after] != source
        or not rest_is_known
    ):
        return None
    return Splice(
        compile_builder(output[start:run], numbers),
        sum(width for width in widths if width is not None),
        compile_builder(output[after:], numbers),
        start == run,
        tuple([part if isinstance(part, bytes) else numbers[part.name] for part in output[start:run]]),
        tuple([part if isinstance(part, bytes) else numbers[part.name] for part in output[after:]]),
    )


class Around(NamedTuple):
    """A known prefix of source keys: a slot, and the bytes before and after it."""

    before: bytes
    #: The width of the slot; None: it ends at the delimiter.
    width: int | None
    after: bytes


class Timeline:
    """The last two sources of a join: a check whose keys bind one slot each, and a copy of the rows under that slot."""

    __slots__ = ("applies_logs", "around", "depth", "fixed_ending", "number", "selecting", "splice")

    def __init__(
        self, depth: int, number: int, selecting: Builder, around: Around, splice: Splice, *, applies_logs: bool
    ) -> None:
        #: The number of the check.
        self.depth = depth
        #: The slot that a key of the check binds; it is all that the key has beyond its known prefix.
        self.number = number
        #: The known prefix of the check's keys.
        self.selecting = selecting
        #: The known prefix of the keys that are copied.
        self.around = around
        self.splice = splice
        #: Whether `apply_log` fits: there are no other sources, and tails begin with the part of the key.
        self.applies_logs = applies_logs
        parts = tuple([part if isinstance(part, bytes) else None for part in splice.tail_parts])
        #: The ending of tails as a template, as `ending` returns it, if no slot is in it that reads fix.
        self.fixed_ending = parts if set(splice.tail_parts) <= {*parts, number} else None

    def ending(self, env: Environment) -> tuple[bytes | None, ...]:
        """Return what follows in a tail as a template: None stands for the value that a key of the check binds."""
        if self.fixed_ending is not None:
            return self.fixed_ending
        return tuple(
            [
                part if isinstance(part, bytes) else None if part == self.number else env[part]
                for part in self.splice.tail_parts
            ]
        )

    def select(self, keys: list[bytes], known: int) -> tuple[list[bytes], list[bytes]]:
        """Return the values that the check's keys bind, and the prefixes of the copied rows, which are frame keys.

        Requires:
            The core is there, as for `fill`.
        """
        assert core is not None, "without it, the loops of an execution do this"
        selected: tuple[list[bytes], list[bytes]] = core.select(keys, known, *self.around)
        return selected

    def fill(
        self,
        env: list[bytes],
        start: int,
        bounds: list[bytes],
        prefixes: list[bytes],
        groups: Groups,
        narrowed: Narrowed,
        lower: bytes,
        upper: bytes | None,
        room: int,
        rows: Rows,
    ) -> int:
        """Add to ``rows`` the groups' rows within bounds on tails.

        Args:
            env: Has the known slot values.
            start: How many of the prefixes are done.
            bounds: As `select` returns them.
            prefixes: As `select` returns them.
            groups: By their prefixes.
            narrowed: The part of each group that can contribute.
            lower: The lower bound on tails.
            upper: The upper bound; None: there is none.
            room: Stop when there are more rows than these.
            rows: Rows are added here.

        Returns:
            How many of the prefixes are done now.
        """
        assert core is not None, "without it, the loops of an execution do this"
        splice, number = self.splice, self.number
        head = tuple(
            [part if isinstance(part, bytes) else None if part == number else env[part] for part in splice.head_parts]
        )
        width, ending = splice.width, self.ending(env)
        done: int = core.fill(
            start, bounds, prefixes, groups, *narrowed, head, width, ending, lower, upper, room, *rows
        )
        return done

    def newest_from(self, prefixes: list[bytes], groups: Groups, first: bytes, wanted: int) -> bytes | None:
        """Return where the last rows of groups begin, as many as are wanted or, where some are alike there, more.

        Args:
            prefixes: As `select` returns them.
            groups: By their prefixes.
            first: Rows whose part of the key is below it do not count.
            wanted: How many rows.

        Returns:
            The part of a key that tails begin with; None: there are fewer rows.

        Cost:
            O(log rows for each group + rows wanted * log groups).
        """
        assert core is not None, "without it, the loops of an execution do this"
        found: bytes | None = core.newest_from(prefixes, groups, first, self.splice.width, wanted)
        return found

    def read_by_log(
        self, context: Materialised, env: Environment, log: Mapping[tuple[int, bytes], bytes | None], selecting: Table
    ) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
        """Return the ranges of both tables that applying a log reads: of the check's keys, and of the copied rows.

        Args:
            context: It is materialised up to its prefix's end.
            env: Has the known slot values.
            log: It has changes of the check's source alone.
            selecting: The table of the check's source.

        Requires:
            ``applies_logs``.
        """
        (before, _, after), known = self.around, len(self.selecting(env))
        lower = context.lower[: self.splice.width]
        checked: list[tuple[bytes, bytes]] = []
        copied: list[tuple[bytes, bytes]] = []
        for (_, key), was in log.items():
            checked.append((key, key + b"\0"))
            if (selecting.get(key) is None) == (was is None):
                continue
            prefix = before + key[known:] + after
            end = prefix_end(prefix)
            assert end is not None, "a prefix begins with the name of a table"
            copied.append((prefix + lower, end))
        return checked, copied


def compile_timeline(
    spec: JoinSpec, known: Sequence[set[str]], splice: Splice | None, numbers: dict[str, int]
) -> Timeline | None:
    """Return the kernel of a join whose last source is copied by ``splice``, None if the join is not of this kind.

    Args:
        spec: The join.
        known: For each source, the slots that are known before it is read.
        splice: As `compile_splice` returns it for the last source.
        numbers: The numbers of the slots.
    """
    depth = len(spec.sources) - 2
    if splice is None or depth < 0 or spec.sources[depth].operator is not Operator.CHECK:
        return None
    check, copied = spec.sources[depth].pattern, spec.sources[-1].pattern
    run = known_run(check.parts, known[depth])
    selecting = check.parts[run:]
    prefix = copied.parts[: known_run(copied.parts, known[-1])]
    match selecting, prefix:
        case (Slot(name, width),), (bytes(before), Slot(copied_name), bytes(after)) if name == copied_name:
            pass
        case _:
            return None
    fixed = known[0]
    shown = {slot.name for slot in copied.slots()}
    if any(slot not in shown for slot in known[-1] - fixed):
        # Frames would have extras.
        return None
    applies_logs = depth == 0 and splice.is_headless
    selected = compile_builder(check.parts[:run], numbers)
    return Timeline(depth, numbers[name], selected, Around(before, width, after), splice, applies_logs=applies_logs)


def apply_write(updaters: HasContexts, tail: bytes, value: bytes) -> int:
    """Put a value under a tail into every context that waits and covers it; return how many have it as a new row."""
    covering = [context for context in updaters.contexts if context.covers(tail)]
    return sum([context.rows.put(tail, value) is None for context in covering])


def tell_row(_route: Route, _key: bytes, _old: bytes | None, _new: bytes | None) -> bool:
    """Bring the rows that follow from a changed plain row up to date, as `Writer._apply` does; False: that has to."""
    return False


def in_order(tails: list[bytes], values: list[bytes]) -> Rows:
    """Return rows in the order of their tails; of equal tails the last one stays."""
    found = dict(zip(tails, values, strict=True))
    ordered = sorted(found)
    return Rows(ordered, [found[tail] for tail in ordered])


if not TYPE_CHECKING and core is not None:
    apply_write, in_order, tell_row = core.apply_write, core.in_order, core.tell_row
