"""What watches promise, in the words of etcd's list, and what is wrong with a history.

ordered       events come by ascending revisions, and changes in the order of the writes
unique        no change is told twice
reliable      none is left out: who applies the changes has the rows
atomic        an event has all of a transaction, or nothing
resumable     a watch that was cut, or goes on in another connection, is as one that was not
bookmarkable  an event of a revision has all up to it, and nothing from behind it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pequod.engine import Change
from tests.watching.history import History, Watched, Write

#: The rows of a watch, as they follow from those of all base keys.
Derive = Callable[[dict[bytes, bytes], Watched], dict[bytes, bytes]]


def wrong(history: History) -> str | None:
    """Return what is wrong, None if nothing is."""
    return next(_faults(history), None)


def _faults(history: History) -> Iterator[str]:
    base, again, part, copies, counts = history.watches
    for watched in history.watches:
        yield from _unordered(watched)
        yield from _unlinked(watched)
    yield from _incomplete(history.writes, base)
    yield from _out_of_order(history.writes, base)
    if _changes(base) != _changes(again):
        yield "two watches of one range were told different changes"
    if [change for change in _changes(base) if part.first <= change.key < part.last] != _changes(part):
        yield "a watch of a part of a range was told other changes than one of all of it"
    for watched, derive in ((again, _rows_of), (part, _rows_of), (copies, _copied), (counts, _counted)):
        yield from _apart(base, watched, derive)


def _changes(watched: Watched) -> list[Change]:
    return [change for event in watched.events for change in event.changes]


def _unordered(watched: Watched) -> Iterator[str]:
    revision = -1
    for number, event in enumerate(watched.events):
        if event.revision < revision or (event.changes and number and event.revision == revision):
            yield f"ordered: revision {event.revision} comes behind {revision}"
        revision = event.revision


def _unlinked(watched: Watched) -> Iterator[str]:
    """Look whether each change begins with what there was, and all lead to what is there at the end."""
    rows = dict[bytes, bytes]()
    for change in _changes(watched):
        if rows.get(change.key) != change.old or change.old == change.new:
            yield f"reliable: {change} where {rows.get(change.key)!r} was"
        _apply(rows, change)
    if rows != watched.rows:
        yield f"reliable: the changes lead to {rows}, a scan says {watched.rows}"


def _incomplete(writes: list[Write], base: Watched) -> Iterator[str]:
    """Look for each write in the events, whose values are all different."""
    told = [
        ((change.key, change.new), number)
        for number, event in enumerate(base.events)
        for change in event.changes
        if change.new is not None
    ]
    places = dict(told)
    if len(places) < len(told):
        yield "unique: a value is told twice"
    for write in writes:
        rows = [(key, value) for key, value in write.rows.items() if value is not None]
        found = {places.get(row) for row in rows}
        if None in found:
            yield f"reliable: {write} is not told"
        elif len(found) > 1:
            yield f"atomic: {write} is told by several events"
        elif found:
            place = places[rows[0]]
            if base.events[place].revision <= write.before:
                yield f"bookmarkable: {write} is told too early"
            if any(event.revision >= write.after for event in base.events[:place]):
                yield f"bookmarkable: {write} is told too late"


def _out_of_order(writes: list[Write], base: Watched) -> Iterator[str]:
    """Look whether a write that began after another one had ended is told behind it."""
    order = {(change.key, change.new): number for number, change in enumerate(_changes(base)) if change.new is not None}
    for one in writes:
        for other in writes:
            if one.returned < other.called:
                before = [order[row] for row in one.rows.items() if row in order]
                after = [order[row] for row in other.rows.items() if row in order]
                if before and after and max(before) > min(after):
                    yield f"ordered: {other} is told before {one}"


def _apart(base: Watched, watched: Watched, derive: Derive) -> Iterator[str]:
    """Compare what two watches have at each revision that both have told."""
    states = dict(_states(base))
    for revision, rows in _states(watched):
        if revision in states and derive(states[revision], watched) != rows:
            yield f"atomic: at revision {revision} of {watched.first!r} there is {rows}"


def _states(watched: Watched) -> Iterator[tuple[int, dict[bytes, bytes]]]:
    rows = dict[bytes, bytes]()
    for event in watched.events:
        for change in event.changes:
            _apply(rows, change)
        yield event.revision, dict(rows)


def _apply(rows: dict[bytes, bytes], change: Change) -> None:
    if change.new is None:
        rows.pop(change.key, None)
    else:
        rows[change.key] = change.new


def _rows_of(rows: dict[bytes, bytes], watched: Watched) -> dict[bytes, bytes]:
    return {key: value for key, value in rows.items() if watched.first <= key < watched.last}


def _copied(rows: dict[bytes, bytes], _: Watched) -> dict[bytes, bytes]:
    cut = [(key.split(b"|"), value) for key, value in rows.items()]
    return {b"|".join((b"t", name, key, part)): value for (_, name, part, key), value in cut}


def _counted(rows: dict[bytes, bytes], _: Watched) -> dict[bytes, bytes]:
    parts = [b"|".join((b"n", *key.split(b"|")[1:3])) for key in rows]
    return {part: b"%d" % parts.count(part) for part in parts}
