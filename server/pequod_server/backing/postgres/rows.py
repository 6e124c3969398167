"""The rows of a table in messages of replication, as a mapping reads them: the key first, the rest if it is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from pequod_server.backing import timed
from pequod_server.backing.errors import PackError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.pgoutput import UNCHANGED, Field
from pequod_server.backing.postgres.schema import TableFacts
from pequod_server.backing.values import Cell, Kind, compose

#: Kinds of columns whose bytes are the value.
_AS_SENT: frozenset[Kind] = frozenset(["text", "number", "json"])


@dataclass(frozen=True, slots=True)
class MappedRows:
    """The plan by which one mapping reads the rows of a table with these columns, in the order of the stream."""

    mapping: Mapping
    #: The number of the mapping.
    number: int
    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    #: The packing function of each slot, and the place of its column.
    packs: tuple[tuple[Callable[[bytes], bytes], int], ...]
    #: The number of columns to read for a key.
    key_count: int
    #: The places of the columns that the value needs, and of all columns that are needed.
    value_at: tuple[int, ...]
    needed_at: tuple[int, ...]
    #: The place of the column of deadlines; None: there is no such column.
    expires_at: int | None

    @staticmethod
    def of(mapping: Mapping, number: int, columns: tuple[str, ...], facts: TableFacts) -> MappedRows:
        """Return the plan of a mapping for rows with these columns, which include all that it needs."""
        packs = tuple((slot.column.pack_sent, columns.index(slot.name)) for slot in mapping.slots)
        value_at = tuple(columns.index(name) for name in mapping.value)
        expires_at = None if mapping.expires is None else columns.index(mapping.expires)
        return MappedRows(
            mapping,
            number,
            columns,
            tuple(facts.columns[name].kind if name in facts.columns else "text" for name in columns),
            packs,
            max(at for _, at in packs) + 1,
            value_at,
            tuple(range(len(columns))) if mapping.condition else value_at,
            expires_at,
        )

    def key(self, row: list[Field]) -> bytes | None:
        """Return the key of a row whose first ``key_count`` columns, at least, are known.

        Returns:
            None if a column of the key was not sent.

        Raises:
            PackError: The row has no key.
        """
        try:
            # A value that is not bytes has no such text, and is handled below.
            return self.mapping.build([pack(row[at]) for pack, at in self.packs])  # type: ignore[arg-type]
        except (PackError, TypeError, AttributeError):
            fields = [row[at] for _, at in self.packs]
        if UNCHANGED in fields:
            return None
        texts = [field.decode() if isinstance(field, bytes) else None for field in fields]
        # This call raises with the name of the column.
        return self.mapping.key(texts)

    def is_whole(self, row: list[Field]) -> bool:
        """Return whether all columns that the value and the condition need were sent."""
        return all(row[at] is not UNCHANGED for at in self.needed_at)

    def shown(self, row: list[Field]) -> bytes | None:
        """Return the value of a whole row, None if it is due."""
        if self.expires_at is None:
            return self.value(row)
        return timed.shown(self.value(row), _text(row[self.expires_at]))

    def value(self, row: list[Field]) -> bytes:
        """Return the value of a whole row, whenever it expires."""
        mapping = self.mapping
        if len(self.value_at) == 1 and mapping.form == "column" and self.kinds[self.value_at[0]] in _AS_SENT:
            field = row[self.value_at[0]]
            assert field is None or isinstance(field, bytes), "the row is whole"
            return field or b""
        return compose(mapping.value, mapping.form, [Cell(_text(row[at]), self.kinds[at]) for at in self.value_at])

    def as_json(self, row: list[Field]) -> str:
        """Return a whole row in the form for `json_populate_recordset`."""
        members = (
            f"{json.dumps(name)}:{_fragment(_text(field), kind)}"
            for name, kind, field in zip(self.columns, self.kinds, row, strict=True)
        )
        return "{" + ",".join(members) + "}"


def _text(field: Field) -> str | None:
    assert field is None or isinstance(field, bytes), "the row is whole"
    return None if field is None else field.decode()


def _fragment(text: str | None, kind: Kind) -> str:
    if text is None:
        return "null"
    return text if kind == "json" else json.dumps(text, ensure_ascii=False)
