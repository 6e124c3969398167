"""Why joins and ranges have no rows: what of the sources' keys matches now.

    check folow|<user>|<poster>     no key and no join has the table 'folow'; is the table 'follow' meant?
    copy status|<id:12>             0 of 1500 keys of 'status|' match status|<id:12>: ...

Only client-written and loaded keys are looked at, some of each source: the first and the last ones of its range. Keys
of other joins, and those that a database has and nothing has loaded, are taken to match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final, NamedTuple, assert_never

from pequod.answers.explanations import Note
from pequod.answers.rows import Rows
from pequod.engine.base.table import Table
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.relations import Directory, Relations
from pequod.escapes import escaped, shown
from pequod.language.containing import keys_of
from pequod.language.forms import Misfit
from pequod.language.patterns import compile_matcher
from pequod.language.ranges import prefix_end
from pequod.language.records import parse_value
from pequod.language.shadowing import hides, is_alike
from pequod.language.spec import DELIMITER, Pattern, Slot

#: Keys that are looked at of one source, and in one call: some 0.5 µs each.
KEYS_MAX: Final = 2000
CALL_KEYS_MAX: Final = 16_000
#: Values that are parsed of one source, their bytes, and those of a value that is parsed at all.
VALUES_MAX: Final = 100
VALUES_BYTES_MAX: Final = 1 << 16
VALUE_BYTES_MAX: Final = 1 << 13
#: Tables among which a similar name is looked for; each costs as much as some keys.
TABLES_MAX: Final = 500
_KEYS_OF_NAME: Final = 20
_NAME_BYTES_MAX: Final = 64
#: How alike two names are: `folow` and `follow`, not `s` and `sx`.
_ALIKE: Final = 0.7
#: Earlier joins with the same output of which it is decided whether they hide another one.
_HIDING_MAX: Final = 8
#: Notes on one range.
NOTES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class NoTable:
    """No key and no join has the table."""

    name: bytes
    #: The table with a similar name, if there is one.
    alike: bytes | None
    #: Whether clients or a database have keys of it; else only joins compute some.
    is_stored: bool


@dataclass(frozen=True, slots=True)
class NoKey:
    """The table has keys, and none in the source's range."""

    pattern: Pattern


@dataclass(frozen=True, slots=True)
class NoMatch:
    """There are keys in the source's range, and none matches, or no value has the fields."""

    text: str
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class NotSelected:
    """Keys and fields match, and the conditions hold for none."""

    text: str
    pattern: Pattern


Finding = NoTable | NoKey | NoMatch | NotSelected


class _Sample(NamedTuple):
    rows: Rows
    #: Whether these are all rows of the range.
    is_whole: bool


class Silence:
    """Looks at sources for one call, within its bounds; it changes nothing."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._keys_left = CALL_KEYS_MAX

    def installed(self, join: InstalledJoin) -> tuple[Note, ...]:
        """Return what to tell of a join that is being installed: tables are usually still empty then."""
        return tuple(note for finding in self._findings(join) for note in _when_installed(finding))

    def explained(self, join: InstalledJoin) -> tuple[Note, ...]:
        """Return why the sources of a join have no rows."""
        return tuple(note for finding in self._findings(join) for note in _when_explained(finding))

    def range(self, first: bytes, last: bytes | None, joins: Iterable[InstalledJoin]) -> tuple[Note, ...]:
        """Return why a range may have no rows.

        Args:
            joins: Those whose outputs may lie there.
        """
        notes = [
            Note(f"join {join.info.name}: {note.text}", note.first, note.last)
            for join in joins
            for note in self.explained(join)
        ]
        name, delimiter, _ = first.partition(DELIMITER)
        end = prefix_end(name + DELIMITER)
        if delimiter and last is not None and end is not None and last <= end and not _is_there(self._at(name)):
            notes += _when_explained(self._no_table(name, b""))
        return tuple(notes[:NOTES_MAX])

    def _at(self, name: bytes) -> Relations | None:
        return self._directory.by_name.get(name)

    def _findings(self, join: InstalledJoin) -> Iterator[Finding]:
        seen = set()
        for depth, source in enumerate(join.spec.sources):
            # What a join computes is not looked at: nothing is computed for it. What may be missing hides no row.
            is_seen = not join.upstreams[depth] and source.operator.binds_slots
            finding = self._look(join, depth, source.pattern) if is_seen else None
            if finding is not None and finding not in seen:
                seen.add(finding)
                yield finding

    def _look(self, join: InstalledJoin, depth: int, pattern: Pattern) -> Finding | None:
        table = join.source_tables[depth]
        sample = self._sample(table, *keys_of(pattern))
        if sample is None:
            return None
        if not sample.rows.keys:
            return self._nothing_in(table, pattern, join.spec.output.literal_prefix.partition(DELIMITER)[0])
        match = compile_matcher(pattern).match
        matching = [(key, value) for key, value in zip(*sample.rows, strict=True) if match(key)]
        if not matching:
            what = f"{_counted(sample, 'key', pattern)} match {pattern}"
            return NoMatch(f"{what}: {difference(pattern, sample.rows.keys[0])}", pattern)
        index = join.indexes[depth]
        if index is None:
            return None
        return _look_at_values(index, matching, f"{join.spec.sources[depth]}", pattern)

    def _nothing_in(self, table: Table, pattern: Pattern, besides: bytes) -> Finding | None:
        relations = self._at(table.name)
        if table.presence is not None:
            return None
        if not _is_there(relations):
            return self._no_table(table.name, besides)
        assert relations is not None, "it is there"
        if relations.outputs and not table.entry_count:
            outputs = ", ".join(f"{join.spec.output} of join {join.info.name}" for join in relations.outputs[:3])
            name = shown(table.name)
            text = f"no key of the table {name} matches {pattern}: it has the keys {outputs}"
            return NoMatch(text, Pattern((table.prefix, Slot("any"))))
        return NoKey(pattern)

    def _sample(self, table: Table, first: bytes, last: bytes) -> _Sample | None:
        """Return some rows of a range, None if the call has looked at enough."""
        wanted = min(KEYS_MAX, self._keys_left)
        if wanted < 2:
            return None
        rows = table.slice(first, last, wanted + 1)
        self._keys_left -= len(rows.keys)
        if len(rows.keys) <= wanted:
            return _Sample(rows, is_whole=True)
        half = wanted // 2
        behind = table.slice(first, last, half, reverse=True)
        return _Sample(Rows(rows.keys[:half] + behind.keys, rows.values[:half] + behind.values), is_whole=False)

    def _no_table(self, name: bytes, besides: bytes) -> NoTable:
        """Look for a similar name among the tables, those with keys first.

        Args:
            besides: The output of the join that reads the table: `stars` is not a misspelt `star`.
        """
        if len(name) > _NAME_BYTES_MAX or self._keys_left <= 0:
            return NoTable(name, None, is_stored=False)
        others = [
            one
            for one in islice(self._directory.by_name.values(), TABLES_MAX)
            if len(one.table.name) <= _NAME_BYTES_MAX and one.table.name not in (name, besides) and _is_there(one)
        ]
        self._keys_left -= min(len(self._directory.by_name), TABLES_MAX) * _KEYS_OF_NAME
        for is_stored in (True, False):
            names = {escaped(one.table.name): one.table.name for one in others if _has_keys(one) is is_stored}
            close = get_close_matches(escaped(name), names, n=1, cutoff=_ALIKE)
            if close:
                return NoTable(name, names[close[0]], is_stored)
        return NoTable(name, None, is_stored=False)


def hidden_by(join: InstalledJoin) -> tuple[str, ...]:
    """Return a warning if an earlier join with the same output shows its values in place of those of a join.

    Cost:
        O(joins over the same keys).
    """
    rivals = [other for other in join.rivals if other.order < join.order and is_alike(other.spec, join.spec)]
    if not rivals:
        return ()
    hiding = next((other for other in rivals[:_HIDING_MAX] if hides(other.spec, join.spec)), None)
    name = (hiding or rivals[0]).info.name
    what = (
        f"nothing of it is shown: join {name}, which was installed before, computes the same keys"
        if hiding is not None
        else f"join {name}, which was installed before, has the same output: of a key of both, its value is shown"
    )
    way_out = f"To replace {name}, drop it first: `pequod join drop {name}`, or client.drop_join({name!r})"
    return (f"{what}. {way_out}",)


def difference(pattern: Pattern, key: bytes) -> str:
    """Say how a key differs from a pattern that it does not match."""
    wanted, found = _pieces(pattern), key.split(DELIMITER)
    if len(wanted) != len(found):
        return f"{shown(key)} has {_count(len(found), 'part')}, the pattern has {len(wanted)}"
    for parts, piece in zip(wanted, found, strict=True):
        slots = [part for part in parts if isinstance(part, Slot)]
        if len(slots) == len(parts) == 1 and slots[0].width is not None and len(piece) != slots[0].width:
            return f"{shown(key)} has {_count(len(piece), 'byte')} in the place of {slots[0]}"
    return f"such as {shown(key)}"


def _pieces(pattern: Pattern) -> list[list[bytes | Slot]]:
    """Return the parts of a pattern between its delimiters."""
    pieces: list[list[bytes | Slot]] = [[]]
    for part in pattern.parts:
        if isinstance(part, Slot):
            pieces[-1].append(part)
            continue
        for number, text in enumerate(part.split(DELIMITER)):
            if number:
                pieces.append([])
            if text:
                pieces[-1].append(text)
    return pieces


def _look_at_values(index: Index, rows: list[tuple[bytes, bytes]], source: str, pattern: Pattern) -> Finding | None:
    reasons: Counter[Misfit] = Counter()
    left = VALUES_BYTES_MAX
    for key, value in rows[:VALUES_MAX]:
        left -= len(value)
        if left < 0:
            break
        seen = index.lens.show(key, value, parse_value) if len(value) <= VALUE_BYTES_MAX else {}
        if not isinstance(seen, Misfit):
            return None
        reasons[seen] += 1
    if not reasons:
        return None
    count = reasons.total()
    what = f"0 of {'the first ' if count < len(rows) else ''}{_count(count, 'value')} match `{source}`"
    if reasons[Misfit.NOT_SELECTED]:
        return NotSelected(f"{what}: the conditions do not hold", pattern)
    ((reason, _),) = reasons.most_common(1)
    more = "; `with` and `as` look at the fields of objects" if reason is Misfit.NO_OBJECT else ""
    return NoMatch(f"{what}: {reason}, such as that of {shown(rows[0][0])}{more}", pattern)


def _counted(sample: _Sample, noun: str, pattern: Pattern) -> str:
    count, first = len(sample.rows.keys), shown(keys_of(pattern)[0])
    where = "" if sample.is_whole else f" (the first and the last {count // 2})"
    return f"0 of {_count(count, noun)} of {first}{where}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _is_there(relations: Relations | None) -> bool:
    """Return whether a table has keys, or may have: those of a database or of joins."""
    return relations is not None and (_has_keys(relations) or bool(relations.outputs))


def _has_keys(relations: Relations) -> bool:
    """Return whether clients or a database have keys of a table, as far as is known."""
    return relations.table.entry_count > 0 or relations.table.presence is not None


def _when_installed(finding: Finding) -> Iterator[Note]:
    match finding:
        case NoTable(name, alike, is_stored):
            # A table that is empty at the start is usual. A similar one is not, and only its readers may know of it.
            if alike is not None and is_stored:
                yield _on_table(f"{_absent(name)}; {_meant(alike)}", alike)
        case NoMatch(text, pattern):
            yield Note(text, *keys_of(pattern))
        case NoKey() | NotSelected():
            pass
        case _:
            assert_never(finding)


def _when_explained(finding: Finding) -> Iterator[Note]:
    match finding:
        case NoTable(name, alike, _):
            yield _on_table(_absent(name), name)
            if alike is not None:
                yield _on_table(_meant(alike), alike)
        case NoKey(pattern):
            yield Note(f"no key begins with {shown(pattern.literal_prefix)}", *keys_of(pattern))
        case NoMatch(text, pattern) | NotSelected(text, pattern):
            yield Note(text, *keys_of(pattern))
        case _:
            assert_never(finding)


def _absent(name: bytes) -> str:
    return f"no key and no join has the table {shown(name)}"


def _meant(alike: bytes) -> str:
    return f"is the table {shown(alike)} meant?"


def _on_table(text: str, name: bytes) -> Note:
    return Note(text, *keys_of(Pattern((name + DELIMITER, Slot("any")))))
