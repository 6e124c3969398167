"""What joins read: the key ranges of a join's sources, and the joins that compute rows there.

    t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>

    outputs [t|ann|, t|ann})  --->  s [s|ann|, s|ann})      p [p|, p})
                                    computed by: none       computed by: the joins that have outputs there

This module uses names and ranges only; it reads no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pequod.language.containing import containing_range, keys_of, meet
from pequod.language.patterns import may_overlap
from pequod.language.ranges import Range
from pequod.language.spec import JoinSpec, Source


class Need(NamedTuple):
    """The rows of one source that a range of a join's outputs needs."""

    source: Source
    #: A range that holds all keys of the source that can contribute.
    within: Range
    #: The joins that compute rows in this range, the earliest installed first.
    computing: list[JoinSpec]


def needs(joins: Sequence[JoinSpec], spec: JoinSpec, first: bytes, last: bytes) -> list[Need]:
    """Return the needs of ``spec``'s outputs in ``[first, last)``, one for each source."""
    found = []
    for source in spec.sources:
        within = Range(*containing_range(spec, source.pattern, first, last))
        overlapping = [join for join in joins if may_overlap(source.pattern, join.output)]
        found.append(Need(source, within, computing(overlapping, *within)))
    return found


def computing(joins: Sequence[JoinSpec], first: bytes, last: bytes | None) -> list[JoinSpec]:
    """Return the joins that may have outputs in ``[first, last)``."""
    return [spec for spec in joins if not _is_empty(meet(first, last, keys_of(spec.output)))]


def ranges_read(joins: Sequence[JoinSpec], first: bytes, last: bytes) -> Iterator[Range]:
    """Yield the ranges that are read to compute all rows of ``[first, last)``, this one included; they may overlap.

    Args:
        joins: All installed joins; none reads its own output.
        first: The first key wanted.
        last: The end of the range.
    """
    within = Range(first, last)
    yield from _ranges_read(joins, within, computing(joins, *within))


def _ranges_read(joins: Sequence[JoinSpec], within: Range, computed_by: Sequence[JoinSpec]) -> Iterator[Range]:
    yield within
    for spec in computed_by:
        for need in needs(joins, spec, *meet(*within, keys_of(spec.output))):
            yield from _ranges_read(joins, need.within, need.computing)


def _is_empty(bounds: tuple[bytes, bytes]) -> bool:
    return bounds[0] >= bounds[1]
