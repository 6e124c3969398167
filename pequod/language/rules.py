"""Which single joins are refused (paper §3); the catalog refuses joins that do not fit together."""

from __future__ import annotations

import re
from itertools import pairwise

from pequod.language.composed_rules import check_composed, check_optional
from pequod.language.errors import JoinError, Span
from pequod.language.record_rules import check_records
from pequod.language.spec import DELIMITER, FORM_WIDTH, SOURCES_MAX, JoinSpec, Operator, Pattern, Slot, Snapshot

#: A slot that is wider than the longest key could never match.
WIDTH_MAX = 4096
#: The most keys that `keep` leaves of a group.
KEEP_MAX = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch


def check_spec(spec: JoinSpec) -> None:
    """Refuse a join that has no meaning or can never compute a key.

    Raises:
        JoinError: With the reason, a hint, and the span of the pattern or source concerned.
    """
    for pattern in (spec.output, *(source.pattern for source in spec.sources)):
        check_pattern(pattern)
    for source in spec.sources:
        check_records(source)
        check_optional(source)
        for slot in source.slots():
            check_slot(slot, source.span)
    _check_widths(spec)
    _check_sources(spec)
    _check_bound(spec)
    _check_absences(spec)
    check_composed(spec)
    _check_keep(spec)
    if isinstance(spec.maintenance, Snapshot) and not (
        spec.maintenance.age_s.is_finite() and spec.maintenance.age_s > 0
    ):
        raise JoinError(
            f"a snapshot's age must be a positive number of seconds, not {spec.maintenance.age_s}",
            hint="write, for example, `snapshot 2.5`",
            span=spec.span,
        )


def check_pattern(pattern: Pattern) -> None:
    """Refuse a pattern that names no table, or whose slots have no certain end.

    Raises:
        JoinError: With the reason, a hint, and the span of the pattern.
    """
    _check_literals(pattern)
    _check_table(pattern)
    _check_slots(pattern)
    _check_neighbours(pattern)


def _check_literals(pattern: Pattern) -> None:
    if b"" in pattern.parts:
        raise JoinError(f"the pattern {pattern} has an empty literal", hint="leave it out", span=pattern.span)
    for part, after in pairwise(pattern.parts):
        if isinstance(part, bytes) and isinstance(after, bytes):
            raise JoinError(
                f"two literals stand side by side in the pattern {pattern}",
                hint=f"write them as one: {_shown(part + after)}",
                span=pattern.span,
            )


def _check_table(pattern: Pattern) -> None:
    if not pattern.parts:
        raise JoinError("the pattern is empty", hint="write, for example, `p|<poster>|<time:10>`", span=pattern.span)
    if isinstance(pattern.parts[0], Slot):
        raise JoinError(
            f"the pattern {pattern} starts with a slot",
            hint="start it with the name of a table and a `|`, such as `p|`",
            span=pattern.span,
        )
    table, delimiter, _ = pattern.literal_prefix.partition(DELIMITER)
    if not table or not delimiter:
        raise JoinError(
            f"the pattern {pattern} does not start with the name of a table and a `|`",
            hint="the part before the first `|` is the table; it is a literal and not empty, such as `p|`",
            span=pattern.span,
        )


def _check_slots(pattern: Pattern) -> None:
    for slot in pattern.slots():
        check_slot(slot, pattern.span)


def check_slot(slot: Slot, span: Span | None) -> None:
    """Refuse a slot without a proper name or width.

    Raises:
        JoinError: With the reason, a hint, and the span.
    """
    if not _NAME(slot.name):
        raise JoinError(
            f"{slot.name!r} is no name for a slot",
            hint="a name is letters, digits and `_`, and does not start with a digit",
            span=span,
        )
    if slot.width is not None and not 1 <= slot.width <= WIDTH_MAX:
        raise JoinError(
            f"the slot <{slot.name}> cannot be {slot.width} bytes wide",
            hint=f"a width is 1 to {WIDTH_MAX}",
            span=span,
        )
    if slot.form is not None and slot.width != FORM_WIDTH:
        raise JoinError(
            f"the slot {slot} is {slot.width} bytes wide",
            hint=f"a slot with {slot.form} has {FORM_WIDTH} bytes",
            span=span,
        )


def _check_neighbours(pattern: Pattern) -> None:
    for part, after in pairwise(pattern.parts):
        if isinstance(part, bytes):
            continue
        if part.width is not None or (isinstance(after, bytes) and after.startswith(DELIMITER)):
            continue
        follower = str(after) if isinstance(after, Slot) else _shown(after)
        raise JoinError(
            f"the slot <{part.name}> in {pattern} never ends: {follower} follows it instead of a `|`",
            hint=f"put a `|` after it, or give it a width, such as <{part.name}:8>",
            span=pattern.span,
        )


def _check_widths(spec: JoinSpec) -> None:
    seen: dict[str, Slot] = {}
    for role in spec.roles:
        for slot in role.slots():
            if seen.setdefault(slot.name, slot) != slot:
                raise JoinError(
                    two_widths(seen[slot.name], slot),
                    hint="a slot has one width in the whole join",
                    span=role.span,
                )


def two_widths(a: Slot, b: Slot) -> str:
    """Return the reason to refuse a slot that two places give different widths or forms."""
    return f"the slot <{a.name}> has two widths: {a.form or a.width or 'none'} and {b.form or b.width or 'none'}"


def _check_sources(spec: JoinSpec) -> None:
    if not spec.sources:
        raise JoinError(
            "the join has no sources",
            hint=f"give it one to {SOURCES_MAX}, such as `copy p|<poster>|<time>`",
            span=spec.span,
        )
    if len(spec.sources) > SOURCES_MAX:
        raise JoinError(
            f"the join has {len(spec.sources)} sources; {SOURCES_MAX} are the most",
            hint="compute a part of it in another join and read its output",
            span=spec.sources[SOURCES_MAX].span,
        )
    values = [source for source in spec.sources if source.operator.gives_value]
    if not values:
        raise JoinError(
            "the join has no value source: all its sources are `check`, `check?` or `unless`",
            hint="exactly one source is copy, count, sum, avg, min or max; it gives the value",
            span=spec.span,
        )
    if len(values) > 1:
        raise JoinError(
            f"the join has {len(values)} value sources: {', '.join(str(source) for source in values)}",
            hint="exactly one source gives the value; make the others `check`",
            span=values[1].span,
        )


def _check_bound(spec: JoinSpec) -> None:
    bound = {slot.name for source in spec.sources for slot in source.bound()}
    missing = [slot.name for slot in spec.output.slots() if slot.name not in bound]
    if missing:
        slots = ", ".join(f"<{name}>" for name in dict.fromkeys(missing))
        raise JoinError(
            f"no source gives a value to {slots} of the output {spec.output}",
            hint="every slot of the output must occur in a source; is it spelled the same there?",
            span=spec.output.span,
        )


def _check_absences(spec: JoinSpec) -> None:
    """Refuse an `unless` with a slot that only a later source gives a value to, or that another `unless` has.

    All slots of a `check?` have values before it.
    """
    bound: set[str] = set()
    free: set[str] = set()
    later = {slot.name for source in spec.sources for slot in source.bound()}
    for source in spec.sources:
        bound |= {slot.name for slot in source.bound()}
        if source.operator.binds_slots:
            continue
        for name in dict.fromkeys(slot.name for slot in source.slots() if slot.name not in bound):
            if name in later:
                raise JoinError(
                    f"<{name}> has no value where `{source}` is looked at",
                    hint=f"write it after the source that gives <{name}> a value",
                    span=source.span,
                )
            if source.operator is Operator.OPTIONAL:
                raise JoinError(
                    f"no source gives a value to <{name}>, so that `{source}` may have several records of a row",
                    hint="each slot of a `check?` has a value from a source before it",
                    span=source.span,
                )
            if name in free:
                raise JoinError(
                    f"no source gives a value to <{name}>, which two `unless` have",
                    hint=f"such a slot stands for any bytes, in each `unless` by itself: call it <{name}2> in this one",
                    span=source.span,
                )
        free |= {slot.name for slot in source.slots()} - bound


def _check_keep(spec: JoinSpec) -> None:
    """Refuse a `keep` of no keys or of too many, and groups that are not those of the first slots of the output."""
    keep = spec.keep
    if keep is None:
        return
    if not 1 <= keep.count <= KEEP_MAX:
        raise JoinError(
            f"`keep` cannot leave {keep.count} keys", hint=f"write a number from 1 to {KEEP_MAX:,}", span=keep.span
        )
    names = tuple(dict.fromkeys(slot.name for slot in spec.output.slots()))
    if keep.slots == names[: len(keep.slots)] and len(keep.slots) < len(names):
        return
    *shown, _ = (f"<{name}>" for name in names or ("",))
    hint = f"write `of {', '.join(shown)}`, or fewer of these" if shown else "write it without `of`"
    named = ", ".join(f"<{name}>" for name in keep.slots)
    if len(keep.slots) < len(names):
        raise JoinError(
            f"`of {named}` are not the first slots of the output {spec.output}",
            hint=f"{hint}: the keys of a group stand together, so that the slots of a group come first in the output",
            span=keep.span,
        )
    reason = (
        f"`of {named}` leaves nothing to choose from" if names else "there is one output key: nothing to choose from"
    )
    raise JoinError(
        reason,
        hint=f"{hint}: the keys of a group agree in the slots after `of`" if names else "leave `keep` out",
        span=keep.span,
    )


def _shown(literal: bytes) -> str:
    return repr(literal.decode("utf-8", "backslashreplace"))
