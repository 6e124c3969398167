"""The plain rows of many records, column by column: an index is built of them (bench rows: records, indexed).

    keys     article|7                article|9                article|10
    slots    7                        9                        10             of the keys
    records  {"author": "bob", ..}    {"author": "ann", ..}    -              no object: the row goes
    slots    bob                      ann                                     of the first field, and so on
    plain    article|bob|7            article|ann|9

A column is made in one go if all its rows are of the usual kind, which takes a third of the time of a call for each.
The native core makes rows of the usual kind where it can (`Quick`), which takes half of that.
`Lens.show` says for one row what all this does for many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, repeat
from typing import Any, Final, TypeVar, cast

from orjson import loads

from pequod.language.collector import collector_paused
from pequod.language.forms import ABSENT, TEXT_BYTES_MAX, FormOf, Misfit, delimited
from pequod.language.parsing import read_json
from pequod.language.record_checks import Record
from pequod.language.records import Lens, Parse, Quick, parse_value
from pequod.language.spec import DELIMITER, Slot

#: Told of each row that shows nothing: the reason, and the key.
Note = Callable[[Misfit, bytes], None]
#: The most rows of a run, whose parsed records are in memory at the same time, and the bytes of values after which it
#: ends.
_ROWS: Final = 256
_BYTES: Final = 256 << 10

_Fit = TypeVar("_Fit")


def show_all(
    lens: Lens, keys: Sequence[bytes], values: Sequence[bytes], note: Note, parse_long: Parse = parse_value
) -> tuple[list[bytes], list[bytes]]:
    """Return the plain rows of many rows, as `Lens.show` does.

    Args:
        lens: What shows them.
        keys: Keys of the table, each once, that begin with the bytes before the pattern's first slot.
        values: Their values.
        note: Called with the reason and the key for each row whose value shows nothing.
        parse_long: Parses the values of a run whose last one is long; so the caller can have each parsed once, and can
            choose when the record is freed.

    Returns:
        The plain keys in no order, each once, and their values.
    """
    if len(keys) == 1:
        # As a check of one key reads: columns are for many, and took a third of such a first read.
        found = lens.show(keys[0], values[0], parse_long)
        if isinstance(found, Misfit):
            note(found, keys[0])
            return [], []
        return [*found], [*found.values()]
    shown_keys: list[bytes] = []
    shown_values: list[bytes] = []
    start = 0
    while start < len(keys):
        stop = start + cut_at(values[start : start + _ROWS], _BYTES)
        with collector_paused():
            found_keys, found_values = RecordRun(lens, keys[start:stop], values[start:stop], note, parse_long).show()
            shown_keys += found_keys
            shown_values += found_values
            del found_keys, found_values
        start = stop
    return shown_keys, shown_values


def is_long(value: bytes) -> bool:
    """Return whether a value takes milliseconds to parse, and its record some to free."""
    return len(value) > _BYTES


def cut_at(values: Sequence[bytes], bytes_max: int) -> int:
    """Return how many of the values reach a number of bytes together, or how many there are."""
    count = size = 0
    while count < len(values) and size < bytes_max:
        size += len(values[count])
        count += 1
    return count


class RecordRun:
    """Some rows of a table, and what is known of them so far.

    Invariants:
        1. The keys, the values, the records and each column of slots are of the same rows.
    """

    __slots__ = ("_keys", "_lens", "_note", "_parse_long", "_records", "_slots", "_values")

    def __init__(
        self, lens: Lens, keys: Sequence[bytes], values: Sequence[bytes], note: Note, parse_long: Parse
    ) -> None:
        self._lens = lens
        self._keys = keys
        self._values = values
        self._note = note
        #: Parses its values if the last one is long; None: it is not, and they are parsed as usual.
        self._parse_long = parse_long if is_long(values[-1]) else None
        self._records: Sequence[Record] = ()
        #: By the numbers of the slots.
        self._slots: list[Sequence[bytes]] = []

    def show(self) -> tuple[Iterable[bytes], Iterable[bytes]]:
        """Return the plain keys, and their values."""
        lens = self._lens
        if lens.quick is not None:
            return self._show_quickly(lens.quick)
        self._match()
        self._parse()
        for name, form in lens.binds:
            self._bind(name, form)
        if lens.checks or lens.gives_fields:
            return self._show_each_by_itself()
        given = self._given()
        if lens.each is None:
            return self._plain_keys(), given
        elements: list[object] = [*map(lens.each.get, self._records)]
        if lens.each.is_bound or {*map(type, elements)} - {list}:
            return self._show_each_by_itself()
        arrays = cast("list[list[object]]", elements)
        texts = _texts([*chain.from_iterable(arrays)], lens.each.form)
        return self._show_each_by_itself() if texts is None else self._show_elements([*map(len, arrays)], texts, given)

    def _show_quickly(self, quick: Quick) -> tuple[list[bytes], list[bytes]]:
        lens, keys, values = self._lens, [*self._keys], [*self._values]
        give = lens.give if lens.has_own_values else None
        shown_keys, shown_values, others = quick.look_all(keys, values, self._parse_long or loads, give)
        for at in others:
            row = lens.show_row(keys[at], values[at], self._parse_long or parse_value)
            if isinstance(row, Misfit):
                self._note(row, keys[at])
            else:
                shown_keys.append(row[0])
                shown_values.append(row[1])
        return shown_keys, shown_values

    def _match(self) -> None:
        """Take the keys apart; leave out those that do not match."""
        match self._lens.view.source.pattern.parts:
            case (bytes(start), Slot(width=width)):
                column = [key[len(start) :] for key in self._keys]
                if _are_plain(column, width):
                    self._slots = [column]
                    return
        found = [*map(self._lens.match, self._keys)]
        matches = [match for match in found if match is not None]
        if len(matches) < len(found):
            self._keep([match is not None for match in found])
        groups = [match.groups() for match in matches]
        self._slots = [*zip(*groups, strict=True)] if groups else [()] * self._lens.key_slot_count

    def _parse(self) -> None:
        """Parse the values; leave out those that are no records for the lens."""
        try:
            found: list[Any] = [*map(self._parse_long or read_json, self._values)]
        except ValueError:
            found = [*map(parse_value, self._values)]
        if self._lens.is_of_whole_values or {*map(type, found)} - {dict}:
            found = [*map(self._lens.record_of, found)]
        self._records = self._keep_fits(found)

    def _bind(self, name: str, form: FormOf) -> None:
        """Take the slot of an outer field; leave out the rows whose field has no form."""
        fields = [record.get(name, ABSENT) for record in self._records]
        texts = _texts(fields, form) or self._keep_fits([*map(form, fields)])
        self._slots.append(texts)

    def _given(self) -> Sequence[bytes]:
        """Return what the source gives for the values; leave out the rows for which it gives nothing."""
        if not self._lens.has_own_values:
            return self._values
        return self._keep_fits([*map(self._lens.give, self._values, self._records)])

    def _show_elements(
        self, counts: list[int], texts: list[bytes], given: Sequence[bytes]
    ) -> tuple[Iterable[bytes], Iterable[bytes]]:
        """Show a row for each element."""

        def spread(column: Iterable[bytes]) -> list[bytes]:
            return [*chain.from_iterable(map(repeat, column, counts))]

        self._slots = [*map(spread, self._slots), texts]
        keys, values = self._plain_keys(), spread(given)
        rows = dict(zip(keys, values, strict=True))
        return (keys, values) if len(rows) == len(keys) else (rows.keys(), rows.values())

    def _plain_keys(self) -> list[bytes]:
        """Return the plain keys of the rows."""
        columns = [self._slots[number] for number in self._lens.plain_numbers]
        return [*map(self._lens.template.__mod__, zip(*columns, strict=True))]

    def _show_each_by_itself(self) -> tuple[Iterable[bytes], Iterable[bytes]]:
        """Show what is still to be looked at row by row."""
        rows: dict[bytes, bytes] = {}
        slots = zip(*self._slots, strict=True) if self._slots else repeat(())
        for key, value, record, bound in zip(self._keys, self._values, self._records, slots, strict=False):
            shown = self._lens.show_rest([*bound], record, value)
            if isinstance(shown, Misfit):
                self._note(shown, key)
            else:
                rows.update(shown)
        return rows.keys(), rows.values()

    def _keep_fits(self, column: list[_Fit | Misfit]) -> list[_Fit]:
        """Return a new column without its misfits; leave out and note their rows."""
        if Misfit not in {*map(type, column)}:
            return column  # type: ignore[return-value]
        for key, one in zip(self._keys, column, strict=True):
            if isinstance(one, Misfit):
                self._note(one, key)
        are_fits = [not isinstance(one, Misfit) for one in column]
        self._keep(are_fits)
        return [one for one in column if not isinstance(one, Misfit)]

    def _keep(self, are_kept: list[bool]) -> None:
        """Leave out rows."""
        self._keys = [*compress(self._keys, are_kept)]
        self._values = [*compress(self._values, are_kept)]
        self._records = [*compress(self._records, are_kept)]
        self._slots = [[*compress(column, are_kept)] for column in self._slots]


def _texts(fields: list[Any], form: FormOf) -> list[bytes] | None:
    """Return the texts of fields in one go; None if they have to be looked at one by one."""
    if form is not delimited or {*map(type, fields)} - {str}:
        return None
    try:
        texts = [*map(str.encode, fields)]
    except UnicodeEncodeError:
        return None
    return texts if _are_plain(texts, None) and max(map(len, texts), default=0) <= TEXT_BYTES_MAX else None


def _are_plain(texts: list[bytes], width: int | None) -> bool:
    """Return whether each text fills a slot of a width, None: up to a delimiter."""
    if width is not None:
        return not {*map(len, texts)} - {width}
    return all(texts) and DELIMITER not in b"".join(texts)
