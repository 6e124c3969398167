"""Micro benchmarks of joins over records, each beside the same join over keys that an application would write."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

import orjson
from pequod_grammar import parse

from pequod.engine import Engine
from pequod_bench.micro.frame import RUN, MicroRows, MicroScale, Samples, clock, timed

RECORDS: Final = MicroRows()
_AUTHORS: Final = 200
#: Articles, where puts are timed; articles of each author, where reads are.
_PUT_ARTICLES, _ARTICLES = _AUTHORS * 10, 50
#: The number of the first article that is put anew.
_NEW: Final = 20_000
_OVER_KEYS: Final = "by|<author>|<id:8> = copy article|<author>|<id:8>"
_OVER_RECORDS: Final = "by|<author>|<id:8> = copy article|<id:8> with author = <author>"
_OF_FIELDS: Final = f"{_OVER_RECORDS} as {{title, stats.votes}}"
_OVER_TWO: Final = "by|<author>|<kind>|<id:8> = copy article|<id:8> with author = <author>, kind = <kind>"
_OVER_TAGS: Final = "tagged|<tag>|<id:8> = copy article|<id:8> with tags[] = <tag>"
_TAG_1: Final = (b"tagged|tag01|", b"tagged|tag01}")
_RANKED: Final = (
    "karma|<author> = count vote|<author>|<voter>;top|<points:i64>|<author> = copy karma|<author> with . = <points:i64>"
)
#: The same of the best 100 alone.
_RANKED_BEST: Final = f"{_RANKED} keep last 100"
_BEST: Final = (b"top|", b"top}")
#: What the rows are compared over: keys, records, and fields of records.
_JOINS: Final = {"keys": _OVER_KEYS, "records": _OVER_RECORDS, "fields of records": _OF_FIELDS}


def _author(number: int) -> bytes:
    return b"a%03d" % (number % _AUTHORS)


def _record(number: int, votes: int | None = None) -> bytes:
    """Return a record of about 200 bytes."""
    stats = {"votes": number if votes is None else votes}
    return orjson.dumps({"author": _author(number).decode(), "title": f"t{number}", "stats": stats, "body": "x" * 120})


def _tagged(number: int) -> bytes:
    """Return another one of this size, with a kind and three tags."""
    tags = [f"tag{number * factor % 50:02}" for factor in (1, 7, 13)]
    fields = {"author": _author(number).decode(), "kind": f"k{number % 17:02}", "tags": tags, "title": f"t{number}"}
    return orjson.dumps({**fields, "body": "x" * 100})


def _located(number: int) -> bytes:
    """Return a record of about 200 bytes with a number that has the digits of a double."""
    fields = {"author": _author(number).decode(), "latitude": 52.520006599999995 + number / 1e6}
    return orjson.dumps({**fields, "body": "x" * 140})


def _key(number: int, joins: str = _OVER_RECORDS) -> bytes:
    return b"article|%s|%08d" % (_author(number), number) if joins == _OVER_KEYS else b"article|%08d" % number


def _range(author: int) -> tuple[bytes, bytes]:
    return b"by|%s|" % _author(author), b"by|%s}" % _author(author)


def _read(joins: str, article_count: int) -> Engine:
    """Return an engine in which all authors have been read."""
    engine = Engine()
    engine.add_joins(parse(joins))
    for number in range(article_count):
        engine.put(_key(number, joins), _record(number))
    for author in range(_AUTHORS):
        engine.scan(*_range(author))
    return engine


def _puts(joins: str, scale: MicroScale) -> Samples:
    """Put new articles, of authors whose articles have been read."""
    engine = _read(joins, scale.of(_PUT_ARTICLES))
    for start in count(_NEW, RUN):
        numbers = range(start, start + RUN)
        yield RUN, timed(engine.put, [(_key(number, joins), _record(number)) for number in numbers])


def _puts_again(joins: str, scale: MicroScale) -> Samples:
    """Put the same articles again, with other votes."""
    article_count = scale.of(_PUT_ARTICLES)
    engine = _read(joins, article_count)
    for start in count(0, RUN):
        numbers = [(start + number) % article_count for number in range(RUN)]
        yield RUN, timed(engine.put, [(_key(number, joins), _record(number, start + 1)) for number in numbers])


def _reads(joins: str, scale: MicroScale) -> Samples:
    """Read the articles of an author for the first time."""
    engine = _read(joins, _AUTHORS * scale.of(_ARTICLES))
    for start in count(0, RUN):
        ranges = [_range(author) for author in range(start, start + RUN)]
        for first, last in ranges:
            engine.invalidate(first, last)
        yield RUN, timed(engine.scan, ranges)


def _parses(record: Callable[[int], bytes], scale: MicroScale) -> Samples:
    """Parse what an index is made of, and keep nothing."""
    values = [record(number) for number in range(scale.of(scale.record_count))]
    while True:
        begun = clock()
        for value in values:
            orjson.loads(value)
        yield len(values), clock() - begun


def _indexes(joins: str, record: Callable[[int], bytes], first: tuple[bytes, bytes], scale: MicroScale) -> Samples:
    """Read a range in an engine without an index."""
    size = scale.of(scale.record_count)
    keys, values = [_key(number) for number in range(size)], [record(number) for number in range(size)]
    while True:
        engine = Engine()
        engine.add_joins(parse(joins))
        engine.put_all(keys, values)
        yield size, timed(engine.scan, [first])


def _ranking(joins: str, scale: MicroScale) -> tuple[Engine, int]:
    """Return an engine with a leaderboard over counts that was read, and the number of its authors."""
    engine, author_count = Engine(), scale.of(scale.record_count)
    engine.add_joins(parse(joins))
    keys = [b"vote|a%07d|v%d" % (author, vote) for author in range(author_count) for vote in range(1 + author % 3)]
    engine.put_all(keys, [b"1"] * len(keys))
    engine.scan(*_BEST)
    return engine, author_count


def _votes(joins: str, scale: MicroScale) -> Samples:
    """Vote for authors here and there, each of which moves in the leaderboard."""
    engine, author_count = _ranking(joins, scale)
    for start in count(0, RUN):
        votes = [(b"vote|a%07d|w%d" % (at * 104_729 % author_count, at), b"1") for at in range(start, start + RUN)]
        yield RUN, timed(engine.put, votes)


def _reads_of_best(joins: str, scale: MicroScale) -> Samples:
    """Read the best 100 of all, after a vote each."""
    engine, author_count = _ranking(joins, scale)
    for at in count():
        engine.put(b"vote|a%07d|w%d" % (at * 104_729 % author_count, at), b"1")
        begun = clock()
        engine.scan(*_BEST, limit=100, reverse=True)
        yield 1, clock() - begun


for _ranks, _some in (("leaderboard over counts", _RANKED), ("leaderboard of 100 over counts", _RANKED_BEST)):
    RECORDS.add(f"{_ranks}, vote", "a put of one vote", _votes, _some)
    RECORDS.add(f"{_ranks}, top 100", "a scan of 100 rows", _reads_of_best, _some)
for _over, _some in _JOINS.items():
    RECORDS.add(f"put, join over {_over}", "a put of 200 bytes", _puts, _some)
for _over, _some in _JOINS.items():
    RECORDS.add(f"put again, join over {_over}", "a put of 200 bytes", _puts_again, _some)
RECORDS.add("read, join over keys", "a first scan of 50 rows", _reads, _OVER_KEYS)
RECORDS.add("read, join over records", "a first scan of 50 rows", _reads, _OVER_RECORDS)
RECORDS.add("records, parsed", "a record", _parses, _record, is_indexing=True)
RECORDS.add("records with tags, parsed", "a record", _parses, _tagged, is_indexing=True)
for _name, *_what in (
    ("records, indexed", _OVER_RECORDS, _record, _range(1)),
    ("records of long decimals, indexed", _OVER_RECORDS, _located, _range(1)),
    ("records, indexed by two fields", _OVER_TWO, _tagged, _range(1)),
    ("records, indexed by each of 3 tags", _OVER_TAGS, _tagged, _TAG_1),
):
    RECORDS.add(_name, "a record", _indexes, *_what, is_indexing=True)


#: Rows, what each is compared with, and how many times that it may take.
RATIOS: Final = (
    ("put, join over records", "put, join over keys", 2.5),
    ("put, join over fields of records", "put, join over keys", 2.5),
    ("put again, join over records", "put again, join over keys", 2.5),
    ("put again, join over fields of records", "put again, join over keys", 2.5),
    ("read, join over records", "read, join over keys", 1.1),
    ("records, indexed", "records, parsed", 4.0),
    ("records, indexed by two fields", "records with tags, parsed", 4.0),
)
