"""The groups of `keep`: which output keys are one group, and which ranges are those of whole groups.

t|<user>|<time:10>|<poster> = ... keep last 400 of <user>
group   t|ann|        all keys of it begin with this, and no others do
widen   [t|ann|0100, t|bob|0200)  ->  [t|ann|, t|bob})
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pequod.language.patterns import compile_matcher
from pequod.language.ranges import Range, prefix_end
from pequod.language.slots import known_run
from pequod.language.spec import JoinSpec, Pattern, Slot

#: Match what all keys of a group begin with.
Match = Callable[[bytes], re.Match[bytes] | None]


def group_parts(spec: JoinSpec) -> Sequence[bytes | Slot]:
    """Return the parts of the output that all keys of a group share.

    Requires:
        The join has `keep`.
    """
    assert spec.keep is not None
    parts = spec.output.parts
    return parts[: known_run(parts, set(spec.keep.slots))]


def compile_group(spec: JoinSpec) -> Match:
    """Compile the function that finds what the group of a key begins with; it requires the same."""
    return re.compile(compile_matcher(Pattern(tuple(group_parts(spec)))).expression, re.DOTALL).match


def widen(match: Match, first: bytes, last: bytes) -> Range:
    """Return the range of all groups of which ``[first, last)`` has a part."""
    if (found := match(first)) is not None:
        first = found[0]
    if (found := match(last)) is not None and found[0] < last:
        end = prefix_end(found[0])
        assert end is not None, "a table name has an end"
        last = end
    return Range(first, last)
