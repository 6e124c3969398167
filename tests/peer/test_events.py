"""Commits of a home that are put together in one event, and loads that hold some of them and not the others."""

from __future__ import annotations

from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import Changes, KeyRange, Landing, RowChange
from pequod_server.backing.store import Event, Loaded, SequenceHorizon
from pequod_server.homes.compute.events import PeerEvents

EVERYTHING = (KeyRange(b"p|", b"p}"),)
STAMP = 7 << 64


def message(*commits: tuple[int, dict[bytes, bytes | None]], **fields: Any) -> pb.PeerFeedReply:
    """Return a message of commits, each with its number, whose position is ten times that."""
    reply = pb.PeerFeedReply(**fields)
    for number, rows in commits:
        reply.counts.append(len(rows))
        reply.positions.append(10 * number)
        reply.sequences.append(number)
        reply.keys.extend(rows)
        reply.values.extend(value or b"" for value in rows.values())
        reply.present += bytes(value is not None for value in rows.values())
    return reply


def events_of(*messages: pb.PeerFeedReply) -> list[Event]:
    made = PeerEvents(STAMP, lambda: EVERYTHING, None)
    events = [event for one in messages for event in made.of(one)]
    return [event for event in events if isinstance(event, Changes)]


@pytest.mark.parametrize(
    ("holds", "rows"),
    [(40, [(b"p|a", b"1")]), (41, [(b"p|a", b"1")]), (42, []), (43, []), (44, [])],
)
def test_a_load_gets_the_commits_that_it_does_not_hold_and_no_other(
    holds: int, rows: list[tuple[bytes, bytes]]
) -> None:
    # The home does not tell of 42: `p|a` was not wanted when it came. It was again before 41 was told.
    (event,) = events_of(message((41, {b"p|a": b"1"}), (43, {b"p|b": b"1"})))
    landing = Landing()
    token = landing.start([KeyRange(b"p|a", b"p|b")])
    assert isinstance(event, Changes)
    landing.note(event)
    held = {40: (), 41: ((b"p|a", b"1"),)}.get(holds, ())
    assert landing.land(token, Loaded(held, SequenceHorizon(10 * holds, STAMP + holds))) == rows


def test_commits_are_put_together_and_their_ends_kept() -> None:
    (event,) = events_of(message((1, {b"p|a": b"1"}), (2, {b"p|a": None, b"p|b": b"2"}), (4, {})))
    changes = RowChange(b"p|a", b"1"), RowChange(b"p|a", None), RowChange(b"p|b", b"2")
    commits = (STAMP + 1, 1), (STAMP + 2, 3), (STAMP + 4, 3)
    assert event == Changes(40, STAMP + 4, changes, commits=commits)
    assert [event.after(SequenceHorizon(0, STAMP + number)) for number in range(5)] == [
        changes,
        changes[1:],
        (),
        (),
        (),
    ]


def test_a_commit_in_several_messages_is_one_event() -> None:
    first, *others = events_of(
        message((1, {b"p|a": b"1"}), (2, {b"p|b": b"1"}), partial=True),
        message((2, {b"p|c": b"1"}), partial=True),
        message((2, {}), (3, {b"p|d": b"1"}), (5, {b"p|e": b"1"}), partial=True),
        message((5, {b"p|f": b"1"})),
    )
    assert first == Changes(10, STAMP + 1, (RowChange(b"p|a", b"1"),))
    changes = RowChange(b"p|b", b"1"), RowChange(b"p|c", b"1"), RowChange(b"p|d", b"1")
    last = RowChange(b"p|e", b"1"), RowChange(b"p|f", b"1")
    assert others == [
        Changes(30, STAMP + 3, changes, commits=((STAMP + 2, 2), (STAMP + 3, 3))),
        Changes(50, STAMP + 5, last),
    ]
