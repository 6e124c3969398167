"""Micro benchmarks of joins over records, each beside the same join over keys that an application would write."""

from __future__ import annotations

from itertools import count
from typing import Final

import orjson
from pequod_grammar import parse

from pequod.engine import Engine, MissingError
from pequod_bench.micro_frame import RUN, MicroRow, MicroScale, Samples, clock, timed

_AUTHORS: Final = 200
#: Articles of each author, where reads are timed.
_ARTICLES: Final = 50
#: The number of the first article that is put anew.
_NEW: Final = 20_000
_OVER_KEYS: Final = "by|<author>|<id:8> = copy article|<author>|<id:8>"
_OVER_RECORDS: Final = "by|<author>|<id:8> = copy article|<id:8> with author = <author>"
_OF_FIELDS: Final = f"{_OVER_RECORDS} as {{title, stats.votes}}"


def _author(number: int) -> bytes:
    return b"a%03d" % (number % _AUTHORS)


def _record(number: int) -> bytes:
    """Return a record of about 200 bytes."""
    fields = {"author": _author(number).decode(), "title": f"t{number}", "stats": {"votes": number}, "body": "x" * 120}
    return orjson.dumps(fields)


def _key(number: int, *, is_keyed: bool) -> bytes:
    return b"article|%s|%08d" % (_author(number), number) if is_keyed else b"article|%08d" % number


def _range(author: int) -> tuple[bytes, bytes]:
    return b"by|%s|" % _author(author), b"by|%s}" % _author(author)


def _read(joins: str, article_count: int) -> Engine:
    """Return an engine in which all authors have been read."""
    engine = Engine()
    engine.add_joins(parse(joins))
    for number in range(article_count):
        engine.put(_key(number, is_keyed=joins == _OVER_KEYS), _record(number))
    for author in range(_AUTHORS):
        engine.scan(*_range(author))
    return engine


def _puts(name: str, joins: str) -> MicroRow:
    """Return the row that puts new articles, of authors whose articles have been read."""

    def samples(scale: MicroScale) -> Samples:
        engine = _read(joins, scale.of(_AUTHORS * 10))
        for start in count(_NEW, RUN):
            numbers = range(start, start + RUN)
            rows = [(_key(number, is_keyed=joins == _OVER_KEYS), _record(number)) for number in numbers]
            yield RUN, timed(engine.put, rows)

    return MicroRow(name, "a put of 200 bytes", samples)


def _reads(name: str, joins: str) -> MicroRow:
    """Return the row that reads the articles of an author for the first time."""

    def samples(scale: MicroScale) -> Samples:
        engine = _read(joins, _AUTHORS * scale.of(_ARTICLES))
        for start in count(0, RUN):
            ranges = [_range(author) for author in range(start, start + RUN)]
            for first, last in ranges:
                engine.invalidate(first, last)
            yield RUN, timed(engine.scan, ranges)

    return MicroRow(name, "a first scan of 50 rows", samples)


def parse_records(scale: MicroScale) -> Samples:
    """Parse what an index is made of, and keep nothing."""
    values = [_record(number) for number in range(scale.of(scale.record_count))]
    while True:
        begun = clock()
        for value in values:
            orjson.loads(value)
        yield len(values), clock() - begun


def build_index(scale: MicroScale) -> Samples:
    """Read one author in an engine without an index."""
    size = scale.of(scale.record_count)
    rows = [(_key(number, is_keyed=False), _record(number)) for number in range(size)]
    while True:
        engine = Engine()
        engine.add_joins(parse(_OVER_RECORDS))
        engine.put_all(*zip(*rows, strict=True))
        yield size, timed(engine.scan, [_range(1)])


def see_changes(scale: MicroScale) -> Samples:
    """Apply a database's changes of rows that are not loaded, beside ranges of an index that were searched for."""
    engine = Engine(backed=[b"article"], can_search=lambda _: True)
    engine.add_joins(parse(_OVER_RECORDS))
    for author in range(scale.of(_AUTHORS // 2)):
        try:
            engine.scan(*_range(author))
        except MissingError as missing:
            for found in missing.searches:
                engine.load_found(found, [(_key(author, is_keyed=False), _record(author))])
                engine.note_searched(found)
            engine.scan(*_range(author))
    for start in count(0, RUN):
        others = [_AUTHORS * (start + number) - 1 for number in range(1, RUN + 1)]
        yield RUN, timed(engine.apply, [(_key(other, is_keyed=False), _record(other)) for other in others])


RECORDS: Final = (
    _puts("put, join over keys", _OVER_KEYS),
    _puts("put, join over records", _OVER_RECORDS),
    _puts("put, join over fields of records", _OF_FIELDS),
    _reads("read, join over keys", _OVER_KEYS),
    _reads("read, join over records", _OVER_RECORDS),
    MicroRow("records, parsed", "a record", parse_records, is_indexing=True),
    MicroRow("records, indexed", "a record", build_index, is_indexing=True),
    MicroRow("change, not searched for", "a change of another author's article", see_changes),
)
#: Rows, what each is compared with, and how many times that it may take.
RATIOS: Final = (
    ("put, join over records", "put, join over keys", 2.5),
    ("read, join over records", "read, join over keys", 1.1),
    ("records, indexed", "records, parsed", 4.0),
)
