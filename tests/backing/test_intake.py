"""Large commits, loads and reloads: the event loop goes on, and a commit is still visible as a whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server.backing import Changes, History, KeyRange, Progress, Reload, RowChange, turns
from pequod_server.backing.store import Loaded, SequenceHorizon
from pequod_server.database.intake import Intake

from pequod.commands.kinds import GET, PUT, SCAN
from pequod.engine import Engine, Range
from pequod.engine.base import presence
from pequod.engine.testing import NaiveModel
from tests.backing.test_loader import TIMELINE, Setting, serving
from tests.backing.turns import turns as watched

LARGE = 100_000
#: Ten times what a turn may take.
TURN_S = 0.2
COMMITS = 40
ALL = KeyRange(b"", None)
#: The first event of a feed.
STANDS = Progress(0, history=History(b"fake"))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look at the clock end a slice, and parts be small."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(turns, "WORK_MAX", 1)
    monkeypatch.setattr("pequod_server.database.intake._SMALL", 2)
    monkeypatch.setattr(presence, "PART_ROWS_MAX", 4)


def posts(count: int, value: bytes, posters: int = 1000) -> dict[bytes, bytes | None]:
    return {b"p|%06d|%04d" % (number % posters, number // posters): value for number in range(count)}


def prepared(setting: Setting, rows: dict[bytes, bytes | None]) -> tuple[RowChange, ...]:
    """Change the rows of the store, and return what its feed is to tell of it; `told` does not take long."""
    for key, value in rows.items():
        assert value is not None
        setting.store.rows[key] = value
    return tuple(RowChange(key, value) for key, value in rows.items())


async def tell(setting: Setting, changes: tuple[RowChange, ...]) -> None:
    setting.store._log.append(changes)
    setting.store._moved.set()
    await setting.caught_up()


async def test_a_large_commit_that_nobody_reads_stops_nobody() -> None:
    async with serving({}) as setting:
        changes = prepared(setting, posts(5 * LARGE, b"one", posters=5000))
        async with watched() as longest:
            await tell(setting, changes)
        assert longest.s < TURN_S


async def test_a_large_commit_of_what_is_loaded_stops_nobody() -> None:
    async with serving({b"s|ann|%06d" % number: b"" for number in range(100)}) as setting:
        prepared(setting, posts(LARGE, b"one"))
        assert await setting.client.count("p|", "p}") == LARGE
        assert len(await setting.timeline("ann")) == LARGE // 10
        changes = prepared(setting, posts(LARGE, b"two"))
        async with watched() as longest:
            await tell(setting, changes)
        assert longest.s < TURN_S
        assert set(await setting.timeline("ann")) == {b"two"}


async def test_a_large_reload_stops_nobody() -> None:
    async with serving({b"s|%04d|000000" % number: b"" for number in range(5000)}) as setting:
        prepared(setting, posts(2 * LARGE, b"one"))
        assert await setting.client.count("p|", "p}") == 2 * LARGE
        assert await setting.client.count("t|", "t}") == 5000 * 2 * LARGE // 1000
        loader = setting.server.loader
        assert loader is not None
        async with watched() as longest:
            await loader._intake.take(Reload(0, (ALL,), "told to"))
        assert longest.s < TURN_S
        assert setting.server.engine.loaded() == []


async def test_a_large_load_is_taken_in_slices() -> None:
    engine = Engine(backed=[b"p"])
    intake = Intake(engine)
    await intake.take(STANDS)
    rows = tuple((key, value or b"") for key, value in sorted(posts(LARGE, b"one").items()))
    whole = Range(b"p|", b"p}")

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        intake.landing.note(Changes(1, 1, tuple(RowChange(key, b"two") for key, _ in rows[::2])))
        return Loaded(rows, SequenceHorizon(0, 0))

    async with watched() as longest:
        assert await intake.load([whole], read) == {}
    assert longest.s < TURN_S
    assert engine.scan(*whole).keys == [key for key, _ in rows]
    assert set(engine.scan(*whole).values[::2]) == {b"two"}
    assert set(engine.scan(*whole).values[1::2]) == {b"one"}


async def test_a_commit_is_visible_as_a_whole_to_every_kind_of_read(tiny: None) -> None:
    """With plain stubs: a commit gives all rows one value, in two tables, of which one goes through a join."""
    rows: dict[bytes, bytes | None] = posts(2000, b"0", posters=20)
    following = {b"s|ann|%06d" % number: b"" for number in range(20)}
    async with (
        serving(dict.fromkeys(rows, b"0") | following) as setting,
        grpc.aio.insecure_channel(setting.target) as channel,
    ):
        stub = PequodStub(channel)  # type: ignore[no-untyped-call]
        keys, seen, waits = list(rows), list[set[bytes]](), [0]
        watch = stub.Watch(pb.WatchRequest(first=b"p|", last=b"p}", rows=True))
        await watch.read()

        async def read(kind: int) -> set[bytes]:
            draw = random.Random(kind)
            some = draw.sample(keys, 50)
            match kind:
                case 0:
                    return set((await stub.MultiGet(pb.MultiGetRequest(keys=some))).values)
                case 1:
                    request = pb.ScanRequest(first=b"t|ann|", last=b"t|ann}", one_chunk=True)
                    return {value async for reply in stub.Scan(request) for value in reply.values}
                case _:
                    call = stub.Execute()
                    kinds = bytes([SCAN, *[GET] * 50, PUT, SCAN])
                    arguments = [b"p|", b"p}", *some, b"x|own", b"1", b"t|ann|", b"t|ann}"]
                    await call.write(pb.ExecuteRequest(kinds=kinds, arguments=arguments))
                    reply = await call.read()
                    await call.done_writing()
                    assert not reply.errors
                    return set(reply.values)

        async def reader(kind: int) -> None:
            while True:
                seen.append(await read(kind))

        async def stranger() -> None:
            while True:
                await stub.Put(pb.PutRequest(key=b"x|%d" % waits[0], value=b"1"))
                assert (await stub.Get(pb.GetRequest(key=b"x|%d" % waits[0]))).value == b"1"
                loader = setting.server.loader
                assert loader is not None
                waits[0] += loader.gate.is_closed

        for kind in range(3):
            await read(kind)
        tasks = [asyncio.create_task(reader(kind)) for kind in range(3)] + [asyncio.create_task(stranger())]
        for number in range(1, 6):
            setting.store.commit(dict.fromkeys(rows, b"%d" % number))
            await setting.caught_up()
            # Of six reads that end from now on, three begin from now on.
            before = len(seen)
            async with asyncio.timeout(60):
                while len(seen) < before + 6:  # noqa: ASYNC110 - readers have no event
                    await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            assert task.cancelled() or task.exception() is None
        assert all(len(values) == 1 for values in seen), [values for values in seen if len(values) > 1]
        assert b"5" in set().union(*seen)
        assert waits[0] > 0, "writes went on while a commit was half applied"
        told: list[list[bytes]] = []
        while len(told) < 5:
            reply = await watch.read()
            if reply.changes:
                told.append([change.new for change in reply.changes])
        assert [set(values) for values in told] == [{b"%d" % number} for number in range(1, 6)]
        assert all(len(values) == len(rows) for values in told)
        watch.cancel()


async def test_what_takes_too_long_to_apply_is_forgotten_as_a_whole(tiny: None) -> None:
    engine = Engine(backed=[b"p", b"s"])
    engine.add_joins(parse(TIMELINE))
    intake = Intake(engine, apply_s=0.0)
    rows = [(key, b"one") for key in sorted(posts(100, b"", posters=10))]
    engine.load(b"p|", b"p}", rows)
    engine.load(b"s|", b"s}", [(b"s|ann|%06d" % number, b"") for number in range(10)])
    assert len(engine.scan(b"t|ann|", b"t|ann}").keys) == 100
    await intake.take(Changes(1, 1, tuple(RowChange(key, b"two") for key, _ in rows[:50])))
    assert not intake.gate.is_closed
    left = [key for key, _ in rows if engine.is_loaded(key)]
    assert 0 < len(left) < 100
    assert all((engine.get(key) == b"two") == (number < 50) for number, (key, _) in enumerate(rows) if key in left)
    engine._check()


async def test_a_load_that_began_after_a_change_was_dropped_has_it(tiny: None) -> None:
    """The change is not loaded when it comes, so it is dropped; the load that begins then does not see it yet."""
    engine = Engine(backed=[b"p"])
    intake = Intake(engine)
    await intake.take(STANDS)
    await intake.take(Changes(5, 5, (RowChange(b"p|bob|0001", b"new"), RowChange(b"p|liz|0001", None)), are_seen=False))
    whole = Range(b"p|", b"p}")

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        return Loaded(((b"p|bob|0001", b"old"), (b"p|liz|0001", b"old")), SequenceHorizon(4, 4))

    assert await intake.load([whole], read) == {}
    assert engine.scan(*whole) == ([b"p|bob|0001"], [b"new"])


async def test_a_key_is_wanted_from_the_begin_of_a_load_to_its_end(tiny: None) -> None:
    engine = Engine(backed=[b"p"])
    intake = Intake(engine)
    await intake.take(STANDS)
    rows = tuple((key, b"one") for key in sorted(posts(500, b"")))
    whole = Range(b"p|", b"p}")
    assert not intake.is_wanted(rows[-1][0])

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        await asyncio.sleep(0)
        return Loaded(rows, SequenceHorizon(0, 0))

    loading = asyncio.create_task(intake.load([whole], read))
    await asyncio.sleep(0)
    while not loading.done():
        assert intake.is_wanted(rows[-1][0])
        assert intake.is_wanted(rows[0][0])
        await asyncio.sleep(0)
    assert intake.is_wanted(rows[-1][0])
    assert not intake.is_wanted(b"s|ann|bob")


async def test_who_reads_a_part_of_a_load_that_is_half_there_waits_for_it(tiny: None) -> None:
    async with serving({}) as setting:
        prepared(setting, posts(3000, b"one"))
        loader = setting.server.loader
        assert loader is not None
        counting = asyncio.create_task(setting.client.count("p|", "p}"))
        async with asyncio.timeout(30):
            while loader._intake._arrivals.partial is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
        assert await setting.client.get("p|000999|0002") == b"one"
        assert await counting == 3000
        assert setting.loads == [1]


@asynccontextmanager
async def stopped_in_the_middle() -> AsyncIterator[Setting]:
    async with serving({}) as setting:
        prepared(setting, posts(3000, b"one"))
        assert await setting.client.count("p|", "p}") == 3000
        setting.store.commit(posts(3000, b"two"))
        loader = setting.server.loader
        assert loader is not None
        async with asyncio.timeout(30):
            while not loader.gate.is_closed:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
        yield setting


async def test_a_server_that_stops_in_the_middle_of_a_commit(tiny: None) -> None:
    async with stopped_in_the_middle() as setting:
        read = asyncio.create_task(setting.client.get("p|000000|0000"))
        await asyncio.sleep(0)
        await setting.server.stop()
        with pytest.raises(Exception):  # noqa: B017 - whatever a server says that stops
            assert await read == b"two"
            raise ConnectionError


@pytest.mark.parametrize("seed", range(30))
async def test_commits_loads_and_reloads_in_any_order_leave_what_the_database_has(tiny: None, seed: int) -> None:
    """Loads may miss what was told, or see further; what they leave is exact once everything was told."""
    draw = random.Random(seed)
    engine = Engine(backed=[b"p", b"s"])
    engine.add_joins(parse(TIMELINE))
    intake = Intake(engine, apply_s=draw.choice([0.0, 5.0]))
    await intake.take(STANDS)
    database: dict[bytes, bytes] = {}
    log: list[Changes] = []
    #: What every load that begins now sees at least.
    floor, told = [0], [0]
    keys = [
        *posts(200, b"", posters=4),
        *[b"s|%s|%06d" % (user, number) for user in (b"ann", b"liz") for number in range(4)],
    ]
    ranges = [Range(b"p|", b"p}"), Range(b"s|ann|", b"s|ann}")]
    ranges += [Range(b"p|%06d|" % number, b"p|%06d}" % number) for number in range(4)]

    async def commit() -> None:
        for _ in range(COMMITS):
            changed = draw.sample(keys, draw.choice([1, 3, 30]))
            rows = {key: None if draw.random() < 0.3 else b"%d" % len(log) for key in changed}
            for key, value in rows.items():
                if value is None:
                    database.pop(key, None)
                else:
                    database[key] = value
            number = len(log) + 1
            log.append(
                Changes(number, number, tuple(RowChange(*row) for row in rows.items()), are_seen=draw.random() < 0.5)
            )
            await wait()

    async def wait() -> None:
        for _ in range(draw.randrange(12)):
            await asyncio.sleep(0)

    async def feed() -> None:
        at = 0
        while at < COMMITS:
            if at < len(log):
                at += 1
                told[0] = at
                if log[at - 1].are_seen:
                    floor[0] = max(floor[0], at)
                await intake.take(log[at - 1])
                if draw.random() < 0.05 and at < COMMITS - 10:
                    floor[0] = max(floor[0], at)
                    one = draw.choice(ranges)
                    await intake.take(Reload(at, (KeyRange(*one),), "told to"))
            await asyncio.sleep(0)

    async def load() -> None:
        # What goes wrong is not to be mended by a later load.
        while told[0] < COMMITS - 10:
            one = draw.choice(ranges)
            least, seen = floor[0], 0

            async def read(ranges: Sequence[KeyRange], least: int = least) -> Loaded:
                nonlocal seen
                await wait()
                # A snapshot may miss commits that were told already, if the feed said so.
                seen = draw.choice([len(log), draw.randint(least, len(log))])
                rows: dict[bytes, bytes] = {}
                for changes in log[:seen]:
                    for change in changes.changes:
                        rows.pop(change.key, None)
                        if change.value is not None:
                            rows[change.key] = change.value
                await wait()
                found = tuple(sorted(row for row in rows.items() if ranges[0].holds(row[0])))
                return Loaded(found, SequenceHorizon(seen, seen))

            if await intake.load([one], read) is not None:
                floor[0] = max(floor[0], seen)
            engine._check()
            compare()

    def compare() -> None:
        """See that all that is loaded is of one moment, the feed's position."""
        if intake.gate.is_closed:
            return
        assert intake.followed.position is not None
        rows = dict[bytes, bytes | None]()
        for changes in log[: intake.followed.position]:
            rows |= {change.key: change.value for change in changes.changes}
        for one in engine.loaded():
            expected = {key: value for key, value in rows.items() if one.first <= key < one.last and value is not None}
            found = engine.scan(*one)
            assert dict(zip(found.keys, found.values, strict=True)) == expected

    async def evict() -> None:
        while told[0] < COMMITS - 10:
            await wait()
            engine.evict(draw.choice([1, 3]))
            compare()

    await asyncio.gather(commit(), feed(), load(), load(), evict())
    assert not intake.gate.is_closed
    engine._check()
    for one in engine.loaded():
        found = engine.scan(one.first, one.last)
        assert dict(zip(found.keys, found.values, strict=True)) == {
            key: value for key, value in database.items() if one.first <= key < one.last
        }
    engine.load(b"p|", b"p}", [row for row in sorted(database.items()) if row[0].startswith(b"p|")])
    engine.load(b"s|", b"s}", [row for row in sorted(database.items()) if row[0].startswith(b"s|")])
    model = NaiveModel()
    for spec in parse(TIMELINE):
        model.add(spec)
    model.base = database
    rows = engine.scan(b"t|", b"t}")
    assert dict(zip(rows.keys, rows.values, strict=True)) == {
        key: value for key, value in model.evaluate().items() if key.startswith(b"t|")
    }
