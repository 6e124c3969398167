"""Reads ranges of base data as of one place, in slices, and subscribes a feed to them.

    turn        1                2                3
                subscribe        |                |
    rows        [ a piece ]      [ a piece ]      [ a piece ]     each as of its turn
    events      40               41               42              place and number: those of the last turn
                                 +--- patched ----+

A piece shows all events up to its turn. The changes of the events between the first turn and the last are applied to
all rows, so the result is what the ranges were in the last turn; the feed tells what comes after it. Applying a change
that a row shows already makes no difference, since changes hold whole values.

A compute that names the joins' next step has the groups prefetched to which the keys of its load lead:

    load   s|ann| .. s|ann}   next: s|ann| -> p| slot |
    rows   s|ann|bob  s|ann|liz      ->   p|bob| .. p|bob}   p|liz| .. p|liz}
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.errors import BackingUnavailableError
from pequod.language.missing import NextGroups
from pequod.language.ranges import Range, prefix_end
from pequod_server.backing import KeyRange, Place
from pequod_server.backing.landing import with_changes
from pequod_server.backing.rows import Clip, sorted_in_steps
from pequod_server.backing.timed import lasting_values
from pequod_server.backing.turns import Turns, in_turns
from pequod_server.homes.home.origin import Origin
from pequod_server.homes.home.relay import Entry, Relay, Subscriber
from pequod_server.homes.messages import UNKNOWN_FEED, groups_of
from pequod_server.wire.publishing import HOME

#: Rows of one piece: less than a millisecond.
_PIECE_ROWS: Final = 1024
#: Ranges that are prefetched with one load; the compute asks for the others in a second one.
_PREFETCHED_MAX: Final = 1024
#: Times that a load begins anew since the ring is too short for it, or ranges of it were forgotten.
_TRIES_MAX: Final = 8


@dataclass(slots=True)
class ReadRows:
    """The rows of some ranges as of a place."""

    #: Parallel columns.
    keys: list[bytes]
    values: list[bytes]
    place: Place
    #: The last event that the rows show.
    sequence: int
    #: The ranges that were prefetched beside those that were asked for.
    prefetched: Sequence[KeyRange] = ()


#: Returns, by the keys of a load in their order, which ranges the compute needs next.
Prefetch = Callable[[list[bytes]], list[KeyRange]]


def prefetch_of(request: pb.PeerLoadRequest, is_allowed: Callable[[KeyRange], bool]) -> Prefetch:
    """Return what to prefetch with a load: for each key of it, the group that the key leads to.

    Args:
        is_allowed: Returns whether the compute may have a range unasked.
    """
    known = [groups_of(one) for one in request.next if one.before and one.prefix]
    whole = {one.before: KeyRange(one.before, prefix_end(one.before)) for one in known}
    allowed = {before for before, one in whole.items() if is_allowed(one)}
    wanted = [one for one in known if one.before in allowed]

    def next_of(keys: list[bytes]) -> list[KeyRange]:
        found: dict[Range, None] = {}
        for groups in wanted:
            found |= dict.fromkeys(groups.of(_under(keys, groups)[: _PREFETCHED_MAX - len(found)]))
        return [KeyRange(*one) for one in found]

    return next_of


def _under(keys: list[bytes], groups: NextGroups) -> list[bytes]:
    """Return the keys that lead to groups."""
    end = prefix_end(groups.prefix)
    stop = len(keys) if end is None else bisect_left(keys, end)
    return keys[bisect_left(keys, groups.prefix) : stop]


async def read_ranges(
    origin: Origin,
    subscriber: Subscriber | None,
    ranges: Sequence[KeyRange],
    next_of: Prefetch = lambda _keys: [],
) -> ReadRows:
    """Read ranges as of one place.

    Args:
        subscriber: Is told the changes of the ranges after the place; perhaps some before it, too.
        next_of: Returns the ranges to prefetch. Those of which the subscriber is told already are left out: the compute
            has them.

    Raises:
        BadRequestError: The ranges are not of base data.
        BackingUnavailableError: The database does not answer, or the rows change too quickly.
        LimitExceededError: There is no memory for them.
    """
    origin.prepare(ranges)
    relay, told = origin.relay, set[KeyRange]()
    for _ in range(_TRIES_MAX):
        if subscriber is not None and not relay.has(subscriber):
            raise BackingUnavailableError(HOME, UNKNOWN_FEED)
        await origin.follow(ranges)
        begin, history = relay.sequence, relay.history
        if subscriber is not None:
            for one in ranges:
                relay.want(subscriber, one.first, one.last)
        bit = None if subscriber is None else subscriber.bit
        found, clip = await _collect(origin, ranges), Clip(ranges)
        if subscriber is not None and (more := _fresh(relay, subscriber, clip, next_of(found.keys), told)):
            told.update(more)
            for one in more:
                relay.want(subscriber, one.first, one.last)
            beside = await _collect(origin, more)
            pairs = zip(found.keys + beside.keys, found.values + beside.values, strict=True)
            rows = await in_turns(sorted_in_steps(pairs), Turns())
            found = ReadRows([key for key, _ in rows], [value for _, value in rows], found.place, 0, more)
            clip = Clip([*ranges, *more])
        # In the turn of the last piece.
        origin.settle()
        found.place = Place(origin.history.timeline, origin.shown_position)
        found.sequence = relay.sequence
        if relay.history != history or (
            subscriber is not None and not (subscriber.bit == bit and relay.has(subscriber))
        ):
            continue
        if found.sequence == begin:
            return found
        events = relay.since(begin)
        if events is None or any(clip.touches(one) for told in events for one in told.reloads):
            continue
        await _patch(found, events, clip)
        return found
    raise BackingUnavailableError(HOME, "its base data change faster than they are read; see peer_keep_bytes")


def _fresh(
    relay: Relay, subscriber: Subscriber, asked: Clip, more: Sequence[KeyRange], told: set[KeyRange]
) -> list[KeyRange]:
    """Return those of some ranges of which a subscriber is told nothing, or by an earlier try of this load alone.

    Those that it asks for are not among them.
    """
    wants, bit = relay.wants, subscriber.bit
    return [
        one
        for one in Clip(more).ranges
        if (one in told or not wants.touches(one.first, one.last, bit)) and not asked.touches(one)
    ]


async def _collect(origin: Origin, ranges: Sequence[KeyRange]) -> ReadRows:
    """Read ranges in pieces; the last piece is as of the turn in which this returns."""
    turns, keys, values = Turns(), list[bytes](), list[bytes]()
    await origin.bring(ranges)
    for one in ranges:
        first: bytes | None = one.first
        while first is not None:
            await turns.give_if_due()
            rows = await origin.scan(first, one.last, _PIECE_ROWS)
            keys += rows.keys
            values += lasting_values(origin.engine.deadlines, rows)
            first = rows.keys[-1] + b"\0" if len(rows.keys) == _PIECE_ROWS else None
    return ReadRows(keys, values, Place(0, 0), 0)


async def _patch(found: ReadRows, events: Sequence[Entry], clip: Clip) -> None:
    """Apply the changes of events to the rows of ranges."""
    turns, late = Turns(), dict[bytes, bytes | None]()
    for told in events:
        for at in range(0, len(told.changes), _PIECE_ROWS):
            late.update([change for change in told.changes[at : at + _PIECE_ROWS] if clip.holds(change[0])])
            await turns.give_if_due()
    if late:
        pairs = tuple(zip(found.keys, found.values, strict=True))
        rows = await in_turns(with_changes(pairs, late), turns)
        found.keys, found.values = [key for key, _ in rows], [value for _, value in rows]
