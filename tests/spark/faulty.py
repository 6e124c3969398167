"""A server whose computed rows are wrong in places, as a defect would leave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pequod_grammar import parse

from pequod.engine import Engine
from tests.spark.served import served


@contextmanager
def faulty_server(
    joins: str,
    rows: Mapping[str, str],
    read: Sequence[tuple[str, str]] = (),
    faults: Sequence[tuple[str, str, str | None]] = (),
) -> Iterator[str]:
    """Run such a server and yield its target.

    Args:
        rows: Its base rows.
        read: Ranges that are materialised at the start.
        faults: Join, key, and the wrong value; None: the row is lost.
    """
    engine = Engine()
    engine.add_joins(parse(joins))
    for key, value in rows.items():
        engine.put(key.encode(), value.encode())
    for first, last in read:
        engine.scan(first.encode(), last.encode())
    for join, key, wrong in faults:
        plant(engine, join, key.encode(), None if wrong is None else wrong.encode())
    with served(engine) as target:
        yield target


def plant(engine: Engine, join: str, key: bytes, value: bytes | None) -> None:
    """Make one materialised row wrong, without anybody noticing."""
    status = engine._catalog.find(join).coverage.find(key)
    assert status is not None, f"{key!r} is not materialised"
    context = status.context
    tail = key[len(context.prefix) :]
    if value is None:
        assert context.rows.remove(tail) is not None
    else:
        assert context.rows.put(tail, value) != value
