"""The ids that a server remembers: for some time, within some bytes, and with a disk or without."""

from __future__ import annotations

import pytest
from pequod_server.once import memory
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import Decided, Once, id_at, once_of, once_of_transaction, refuse_id, with_head
from pequod_server.once.parts import IdPart, is_part
from pequod_server.steps.repeatable import OnceRun

from pequod.answers.transacted import Transacted
from pequod.commands.kinds import ADD, GET, PUT_IF, REMOVE_IF
from pequod.engine import Engine
from pequod.errors import BadRequestError
from pequod.language.conditions import MET, Unmet
from pequod.language.transactions import CommandList, Transaction


def id_of(number: int) -> bytes:
    return number.to_bytes(16)


def an_add(number: int) -> Once[Decided]:
    return once_of(id_of(number), ADD, b"n", b"1")


class Clock:
    """A wall clock that the test sets."""

    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        *((ADD, outcome) for outcome in (b"", b"12.5", None)),
        *((PUT_IF, outcome) for outcome in (MET, Unmet(None), Unmet(b""), Unmet(b"there"))),
    ],
)
def test_a_command_s_outcome_comes_back_as_it_was(kind: int, outcome: Decided) -> None:
    write = once_of(id_of(1), kind, b"k", b"v", b"expected", 3)
    assert write.outcome(write.kept(outcome)) == outcome


def test_a_command_that_gave_nothing_is_not_done_again() -> None:
    memory, engine, outcomes = RequestIds(), Engine(), list[object]()
    memory.remember(id_of(1), an_add(1).kept(None))
    run = OnceRun(bytes([ADD]), [b"n", b"1"], [], 0, {0: id_of(1)}, memory)

    def take(outcome: object) -> bool:
        outcomes.append(outcome)
        return False

    assert run.run(engine, lambda: 0.0, take) is None
    assert (outcomes, engine.get(b"n")) == ([None], None)


def test_a_transaction_s_outcome_comes_back_as_it_was() -> None:
    commands = CommandList(bytes([ADD, GET]), [b"n", b"1", b"m"], [])
    write = once_of_transaction(Transaction((), commands, request_id=id_of(1)))
    done = Transacted(True, [b"5", None])
    assert write.outcome(write.kept(done)) == done


def test_an_id_of_another_write_is_refused() -> None:
    kept = once_of(id_of(1), ADD, b"n", b"1").kept(b"1")
    others = [
        once_of(id_of(1), ADD, b"n", b"2"),
        once_of(id_of(1), ADD, b"m", b"1"),
        once_of(id_of(1), ADD, b"n1", b""),
        once_of(id_of(1), REMOVE_IF, b"n", b"1"),
        once_of(id_of(1), ADD, b"n", b"1", number=1),
    ]
    for other in others:
        with pytest.raises(BadRequestError, match="sent with another write"):
            other.outcome(kept)
    for wrong in (b"short", bytes(17)):
        with pytest.raises(BadRequestError, match="has 16 bytes"):
            refuse_id(wrong)
    refuse_id(b"")


def test_a_write_is_done_once_and_without_an_id_each_time() -> None:
    ids, done = RequestIds(), list[int]()

    def add() -> bytes:
        done.append(1)
        return b"%d" % len(done)

    write = an_add(1)
    assert [ids.once(write, add), ids.once(write, add), ids.once(an_add(2), add)] == [b"1", b"1", b"2"]
    plain = write._replace(request_id=b"")
    assert [ids.once(plain, add), ids.once(plain, add)] == [b"3", b"4"]
    ids._check()
    assert (ids.figures.id_count, ids.figures.repeated) == (2, 1)


def test_what_is_refused_is_not_remembered() -> None:
    ids = RequestIds()

    def refuse() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ids.once(an_add(1), refuse)
    assert ids.once(an_add(1), lambda: b"1") == b"1"


def test_ids_are_let_go_after_their_time() -> None:
    clock = Clock()
    ids = RequestIds(keep_s=10.0, clock=clock)
    ids.remember(id_of(1), b"one")
    clock.now_s += 9
    ids.remember(id_of(2), b"two")
    assert ids.known(id_of(1)) == b"one"
    clock.now_s += 2
    ids.remember(id_of(3), b"three")
    assert (ids.known(id_of(1)), ids.known(id_of(2))) == (None, b"two")
    assert ids.figures.let_go_early == 0
    ids._check()


def test_ids_are_let_go_early_where_memory_is_full_and_a_figure_tells() -> None:
    ids = RequestIds(bytes_max=10_000)
    for number in range(100):
        ids.remember(id_of(number), bytes(100))
        ids._check()
    figures = ids.figures
    assert figures.let_go_early == 100 - figures.id_count > 0
    assert figures.size_bytes <= 10_000
    assert ids.known(id_of(0)) is None
    assert ids.known(id_of(99)) == bytes(100)
    ids.remember(id_of(100), bytes(20_000))
    ids._check()
    assert ids.figures.id_count == 0, "one that is longer than the whole memory is not kept"


def test_a_disk_gets_what_it_does_not_have_and_forgets_what_is_let_go() -> None:
    clock = Clock()
    ids = RequestIds(keep_s=10.0, clock=clock)
    ids.remember(id_of(1), b"before")
    assert ids.unsaved == {}, "there is no disk"
    ids.begin([])
    ids.remember(id_of(2), b"two")
    saved = dict(ids.unsaved)
    ids.unsaved.clear()
    clock.now_s += 11
    ids.remember(id_of(3), b"three")
    assert ids.unsaved.keys() == {id_of(1), id_of(2), id_of(3)}
    assert (ids.unsaved[id_of(1)], ids.unsaved[id_of(2)]) == (None, None)
    again = RequestIds(keep_s=10.0, clock=clock)
    again.begin((request_id, kept) for request_id, kept in saved.items() if kept is not None)
    assert again.known(id_of(2)) == b"two", "nothing was remembered since, which would let it go"
    again._check()


def test_what_a_disk_could_not_take_is_forgotten() -> None:
    ids = RequestIds()
    ids.begin([])
    ids.remember(id_of(1), b"one")
    ids.unsaved.clear()
    ids.remember(id_of(2), b"two")
    ids.undo()
    assert (ids.known(id_of(1)), ids.known(id_of(2)), ids.unsaved) == (b"one", None, {})
    ids._check()


def parts_of(ids: RequestIds, batch_id: bytes, *numbers: range) -> None:
    for some in numbers:
        ids.remember_all(batch_id, b"".join(with_head(id_at(batch_id, at), b"%d" % at) for at in some), len(some))
        ids._check()


def test_the_ids_of_a_batch_are_known_one_by_one_in_whatever_parts_they_came() -> None:
    ids, batch_id = RequestIds(), b"b" * 12
    assert ids.is_new(batch_id)
    parts_of(ids, batch_id, range(3, 6), range(1), range(8, 10))
    assert not ids.is_new(batch_id)
    assert ids.figures.id_count == 6
    known = [ids.known(id_at(batch_id, at)) for at in range(11)]
    assert known == [b"0", None, None, b"3", b"4", b"5", None, None, b"8", b"9", None]
    parts_of(ids, batch_id, range(6, 8))
    assert ids.known(id_at(batch_id, 7)) == b"7", "what was asked for last is kept apart, and grows"
    assert ids.known(id_at(b"c" * 12, 4)) is None
    assert ids.figures.repeated == 7


def test_parts_of_a_batch_are_let_go_one_by_one_and_it_is_new_when_all_are() -> None:
    clock, batch_id = Clock(), b"b" * 12
    ids = RequestIds(keep_s=10.0, clock=clock)
    ids.begin([])
    parts_of(ids, batch_id, range(3))
    clock.now_s += 6
    parts_of(ids, batch_id, range(3, 6), range(6, 7))
    assert ids.known(id_at(batch_id, 1)) == b"1"
    clock.now_s += 6
    ids.remember(id_of(1), b"one")
    ids._check()
    assert [ids.known(id_at(batch_id, at)) for at in range(7)] == [None, None, None, b"3", b"4", b"5", b"6"]
    assert not ids.is_new(batch_id)
    assert ids.unsaved[id_at(batch_id, 0)] is None, "a part goes from the disk as a whole"
    clock.now_s += 6
    ids.remember(id_of(2), b"two")
    ids._check()
    assert ids.is_new(batch_id)
    assert ids.known(id_at(batch_id, 4)) is None


def test_the_part_of_a_batch_that_a_disk_could_not_take_is_forgotten_alone() -> None:
    ids, batch_id = RequestIds(), b"b" * 12
    ids.begin([])
    parts_of(ids, batch_id, range(3))
    ids.unsaved.clear()
    parts_of(ids, batch_id, range(3, 6))
    assert ids.known(id_at(batch_id, 4)) == b"4"
    ids.undo()
    ids._check()
    assert [ids.known(id_at(batch_id, at)) for at in (1, 4)] == [b"1", None]


def test_a_start_with_less_memory_takes_the_latest_in() -> None:
    ids, clock = RequestIds(), Clock()
    ids = RequestIds(clock=clock)
    ids.begin([])
    for number in range(20):
        clock.now_s += 1
        ids.remember(id_of(number), bytes(100))
    saved = [(request_id, kept) for request_id, kept in ids.unsaved.items() if kept is not None]
    small = RequestIds(bytes_max=2000, clock=clock)
    small.begin(reversed(saved))
    small._check()
    assert small.known(id_of(19)) == bytes(100)
    assert small.unsaved[id_of(0)] is None


async def told(ids: RequestIds, since: bytes) -> tuple[list[bytes], bytes]:
    """Return the ends of the ids of all pages from a place on, and the place behind them."""
    found: list[bytes] = []
    while True:
        page = await ids.page(since)
        found, since = [*found, *(part.id[-1:] for part in page.parts)], page.next
        if not page.has_more:
            return found, since


async def test_pages_tell_all_ids_once_and_then_those_that_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PAGE_BYTES", 100)
    ids = RequestIds(bytes_max=30 * 400)
    parts_of(ids, b"b" * 12, range(5), range(5, 6))
    for number in range(20):
        ids.remember(id_of(number), b"outcome")
    found, since = await told(ids, b"")
    assert found == [b"\0", b"\5", *(bytes([number]) for number in range(20))]
    assert (await told(ids, since))[0] == []
    for number in range(20, 40):
        ids.remember(id_of(number), b"outcome")
    assert ids.figures.let_go_early, "the first ones are gone"
    assert (await told(ids, since))[0] == [bytes([number]) for number in range(20, 40)]
    other = RequestIds()
    other.remember(id_of(1), b"outcome")
    assert (await told(other, since))[0] == [b"\1"], "a place of another life is none"


async def test_what_came_after_an_undo_is_told() -> None:
    ids = RequestIds()
    ids.begin([])
    for number in range(3):
        ids.remember(id_of(number), b"saved")
    ids.unsaved.clear()
    ids.remember(id_of(3), b"undone")
    _, since = await told(ids, b"")
    ids.undo()
    ids.remember(id_of(4), b"new")
    assert b"\4" in (await told(ids, since))[0]


async def test_ids_of_another_home_are_known_until_their_time_is_over_and_go_to_the_disk() -> None:
    clock, batch_id = Clock(), b"b" * 12
    one, other = RequestIds(keep_s=10.0, clock=clock), RequestIds(keep_s=10.0, clock=clock)
    other.begin([])
    parts_of(one, batch_id, range(3))
    one.remember(id_of(1), b"one")
    clock.now_s += 8
    page = await one.page(b"")
    for _ in range(2):
        await other.take(page.parts)
        other._check()
    assert other.unsaved.keys() == {id_of(1), id_at(batch_id, 0)}
    assert [other.known(id_at(batch_id, at)) for at in range(4)] == [b"0", b"1", b"2", None]
    assert other.known(id_of(1)) == b"one"
    clock.now_s += 3
    other.remember(id_of(2), b"two")
    assert other.known(id_of(1)) is None
    await other.take([part._replace(age_ms=10_001) for part in page.parts])
    assert other.known(id_of(1)) is None, "it is too old"
    await other.take([IdPart(id_of(2), with_head(id_of(2), b"the home's own"), 0)])
    assert other.known(id_of(2)) == b"the home's own"
    other._check()


def test_a_part_is_told_from_other_bytes() -> None:
    outcomes = with_head(id_of(1), b"one") + with_head(id_of(2), b"")
    assert is_part(id_of(1), outcomes)
    for part_id, some in ((id_of(2), outcomes), (id_of(1), outcomes[:-1]), (id_of(1), b""), (b"", outcomes)):
        assert not is_part(part_id, some)
