"""A database that is asked by fields, and gives what it finds in no order of plain keys, with rows nobody asked for."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from zlib import crc32

from pequod.engine import Engine, LimitExceededError, Search, SearchRange, prefix_end
from pequod.engine.naive_records import form, parse
from pequod.language.forms import OWN_FIELD
from pequod.language.patterns import compile_matcher


def can_search(search: Search) -> bool:
    """Return whether it can be asked: for three of four searches."""
    return crc32(repr(search.fields).encode()) % 4 > 0


def find(found: SearchRange, rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the rows whose columns may give a plain key of a range."""
    return [row for row in rows if _may_show(found, *row)]


def answer(
    engine: Engine, found: SearchRange, rows: Iterable[tuple[bytes, bytes]], random: Random | None = None
) -> None:
    """Load what the database finds into an engine, in two pieces, and perhaps rows that were not asked for."""
    there = list(rows)
    chosen = find(found, there)
    if random is not None:
        chosen += random.sample(there, random.randint(0, min(2, len(there))))
        random.shuffle(chosen)
    half = len(chosen) // 2
    try:
        for piece in (chosen[:half], chosen[half:]):
            engine.load_found(found, piece)
    except LimitExceededError:
        engine.abandon_search(found)
        raise
    engine.note_searched(found)


def _may_show(found: SearchRange, key: bytes, value: bytes) -> bool:
    search = found.search
    matcher = compile_matcher(search.own)
    match = matcher.match(key)
    try:
        record = parse(value.decode())
    except ValueError:
        return False
    if match is None:
        return False
    columns = {OWN_FIELD: record, **(record if isinstance(record, dict) else {})}
    known = dict(zip(matcher.names, match.groups(), strict=True))
    fields, plain = dict(search.fields), b""
    for part in search.plain.parts:
        if isinstance(part, bytes):
            plain += part
            continue
        if part.name not in known and part.name not in fields:
            end = prefix_end(plain)
            return plain < found.last and (end is None or found.first < end)
        text = known.get(part.name) or (
            form(columns[fields[part.name]], part) if fields[part.name] in columns else None
        )
        if text is None:
            return False
        plain += text
    return found.first <= plain < found.last
