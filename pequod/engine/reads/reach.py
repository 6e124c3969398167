"""How far a read of some rows goes: where what is materialised has as many, or behind a piece of a gap.

    scan [t|, t}) limit 10     t|ann| t|bob|      gap of a hundred thousand users
                               |############|-------------->           rows are few: a piece of the gap
                                               s|cat|.. s|dan|..       its end: by some keys of the first source

A gap is computed as a whole, in one turn and beside the memory that is counted. So a read that wants few rows cuts it
behind some keys of the first source: any cut is right, and this one leaves slices of work. A read that wants all rows
may have them computed in such slices before, too. A group of a source is not cut, nor one of `keep`, nor a gap whose
keys are in another order than those of the first source.

Of a paged table, the keys that say where to cut may not be here: a read of few rows lacks these first, and not all of
the gap. Each part may lack something, so that reads of many rows lack the whole gap at once, while memory has room.
"""

from __future__ import annotations

from sys import maxsize

from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.read import Read
from pequod.language.missing import FirstRows
from pequod.language.ranges import Range, prefix_end
from pequod.language.slots import known_run
from pequod.language.spec import DELIMITER, Slot

#: The keys of a join's first source for a slice of a gap.
SLICE_KEYS = 64


def reach(
    join: InstalledJoin, first: bytes, last: bytes, read: Read, row_count: int = maxsize, slices: int = 1
) -> bytes:
    """Return where to end a read of ``[first, last)`` that wants the first rows of it.

    Args:
        read: Notes the keys that it lacks to say so; then it is to be refused.
        join: Computes keys of the range.
        first: Where the read begins.
        last: The end of its range.
        row_count: It ends where this number of rows is materialised;
        slices: or in the first gap, behind this number of slices.

    Cost:
        O(log ranges + ranges up to that end + keys of the slices).
    """
    key_count = slices * SLICE_KEYS
    if join.is_pull:
        return gap_end(join, first, last, key_count, read)
    at = first
    for status in join.coverage.walk_over(first, last):
        if at < status.first and (end := gap_end(join, at, status.first, key_count, read)) < status.first:
            return end
        at = min(last, status.last)
        row_count -= status.context.count(max(first, status.first), at)
        if row_count <= 0:
            return at
    return gap_end(join, at, last, key_count, read) if at < last else last


def is_long(join: InstalledJoin, gap: Range, read: Read) -> bool:
    """Return whether a gap has more than a slice to compute; see `reach`."""
    return gap_end(join, *gap, SLICE_KEYS, read) < gap.last


def gap_end(join: InstalledJoin, first: bytes, last: bytes, key_count: int, read: Read) -> bytes:
    """Return where to cut ``[first, last)``, so that the part below has ``key_count`` keys of the first source or so.

    Args:
        read: As `reach`.

    Returns:
        ``last`` if there are fewer, or if the source's keys do not say where.
    """
    first, last = join.clip(first, last)
    if first >= last or join.views[0] is not None:
        return last
    plan, environment, prefix = join.plan_for(first, last)
    if plan.cap is not None and plan.cap.is_single:
        return last
    step, parts = plan.steps[0], join.plain.sources[0].pattern.parts
    at = known_run(parts, step.known)
    slot = plan.tail_parts[0] if plan.tail_parts else None
    if at == len(parts) or slot is None or parts[at] != slot:
        return last
    assert isinstance(slot, Slot)
    begin = step.prefix(environment)
    low = _low(begin, first[len(prefix) :], slot, is_last=at + 1 == len(parts)) if first.startswith(prefix) else begin
    high = prefix_end(begin + _value(last[len(prefix) :], slot) if last.startswith(prefix) else begin)
    assert high is not None, "a table name has an end"
    key = _key_at(join, low, high, key_count, read)
    if key is None or not key.startswith(begin):
        return _below_prefixes(join, first, last, prefix, slot, read)
    cut = prefix + _value(key[len(begin) :], slot)
    if cut <= first or first.startswith(cut):
        # All these keys are of the first group, which is not cut.
        cut = _group_end(cut, slot)
        if cut <= first:
            # They are of a group that lies above the first one only in the source.
            cut = _group_end(prefix + _value(first[len(prefix) :], slot), slot)
    return _below_prefixes(join, first, cut if first < cut < last else last, prefix, slot, read)


def _below_prefixes(join: InstalledJoin, first: bytes, cut: bytes, prefix: bytes, slot: Slot, read: Read) -> bytes:
    r"""Return where to cut ``[first, cut)`` of a paged source, so that the keys that the part below needs lie together.

    [n|, n|12)    n|1 is in it, and its source's keys d|1|.. are behind those of d|12|..
    cut           [n|, n|1)   [n|1, n|1\0)   [n|1\0, n|12)
    """
    if slot.width is not None or join.plain.output.parts[-1] != slot or not cut.startswith(prefix):
        return cut
    if not (read.in_parts and join.source_tables[0].is_paged):
        return cut
    for size in range(len(prefix) + 1, len(cut)):
        shorter = cut[:size]
        if first < shorter:
            return shorter
        if first == shorter:
            return shorter + b"\0"
    return cut


def _key_at(join: InstalledJoin, first: bytes, last: bytes, count: int, read: Read) -> bytes | None:
    """Return the key behind ``count`` keys of the first source; None if there are no more. Of computed keys, a cut."""
    ends, table = [], join.source_tables[0]
    keys = table.slice(first, last, count + 1).keys
    if read.in_parts and table.is_paged and table.presence is not None:
        start, stop = table.clip(first, keys[-1] + b"\0" if len(keys) > count else last)
        gaps = table.presence.gaps(start, stop, read.number) if start < stop else []
        if gaps:
            read.lack([FirstRows(gaps[0].first, gaps[-1].last, count + 1, is_down=False)])
            return None
    if len(keys) > count:
        ends.append(keys[-1])
    for upstream in join.upstreams[0]:
        start, stop = upstream.clip(first, last)
        if start < stop and (end := gap_end(upstream, start, stop, count, read)) < stop:
            ends.append(end)
    return min(ends, default=None)


def _low(begin: bytes, tail: bytes, slot: Slot, *, is_last: bool) -> bytes:
    """Return where the source's keys begin that a range needs whose first key ends with ``tail``.

    Of a group that it begins within, behind those whose names begin with the group's: d|20| is below d|2|.

    Args:
        is_last: Whether the source's keys end with the slot.
    """
    value = _value(tail, slot)
    is_within = slot.width is None and len(value) < len(tail) and not is_last
    return begin + value + DELIMITER if is_within else begin + value


def _group_end(group: bytes, slot: Slot) -> bytes:
    """Return the first key above those of a group, which ends with the value of a slot."""
    end = prefix_end(group if slot.width is not None else group + DELIMITER)
    assert end is not None, "a table name has an end"
    return end


def _value(tail: bytes, slot: Slot) -> bytes:
    """Return what a key has in a slot, with which its tail begins; less if it ends before."""
    return tail[: slot.width] if slot.width is not None else tail.split(DELIMITER, 1)[0]
