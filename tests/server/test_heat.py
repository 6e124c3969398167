"""Which keys a server's time goes to: the sketch against exact counts, the meter by its own clock, ranges in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import grpc
import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.access.grants import Right, Role
from pequod_server.access.trims import Trims
from pequod_server.heat.meter import HALF_LIFE_S, HeatMeter
from pequod_server.heat.range_heat import heat_of_ranges
from pequod_server.heat.sketch import Sketch
from pequod_server.ops.heated import HeatedCalls
from pequod_server.ops.observe import ONE_PIECE, BatchRequest, Call
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick
from pequod_server.wire.handlers import SERVICE_PATH

from pequod.cluster.grouping import Grouping, Placement
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.commands.kinds import GET, SCAN
from pequod.engine import Engine
from pequod.errors import BadRequestError
from pequod.native import core


@pytest.mark.parametrize("seed", range(5))
def test_the_sketch_is_never_off_by_more_than_it_says(seed: int) -> None:
    random, sketch, exact = Random(seed), Sketch(8), Counter[bytes]()
    for _ in range(60):
        for _ in range(random.randrange(30)):
            group = b"t|%d|" % int(random.paretovariate(1.0))
            exact[group] += 1
            sketch.add(group, 1.0, reads=1.0, writes=0.0)
        sketch.shrink()
        assert len(sketch) <= 8
        kept = dict(sketch.top(8))
        for group, one in kept.items():
            assert one.cpu_s - one.error_s <= exact[group] <= one.cpu_s
        assert all(count <= sketch.floor_s for group, count in exact.items() if group not in kept)
    assert sketch.top(1)[0][0] == b"t|1|"


class Clock:
    """Time that passes when a test says so, and half of it is the processor's."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def process_s(self) -> float:
        return self.now_s / 2


def metered(clock: Clock, *keys: tuple[bytes, bool, float, int]) -> HeatMeter:
    meter = HeatMeter(clock, clock.process_s)
    for key, is_write, seconds, commands in keys:
        meter.note(key, is_write, seconds, commands)
    clock.now_s += 1.0
    meter.tick()
    return meter


def test_time_is_shared_out_by_the_samples_of_calls() -> None:
    clock = Clock()
    meter = metered(clock, (b"t|ann|1", False, 0.003, 1), (b"t|bob|1", False, 0.001, 10), (b"p|bob|1", True, 0.001, 1))
    assert meter.cores == 0.5
    ann, *others = meter.groups()
    assert (ann.group, round(ann.cores, 6), ann.reads, ann.writes) == (b"t|ann|", 0.3, 1.0, 0.0)
    assert {one.group: (round(one.reads), one.writes) for one in others} == {b"t|bob|": (10, 0.0), b"p|bob|": (0, 1.0)}
    clock.now_s += HALF_LIFE_S
    meter.note(b"t|bob|1", False, 0.005)
    meter.tick()
    assert meter.groups()[0].group == b"t|bob|", "what was before counts half"


def test_an_idle_server_lays_its_time_on_no_key() -> None:
    clock = Clock()
    meter = metered(clock, (b"p|bob|1", True, 0.0005, 1))
    for _ in range(60):
        clock.now_s += 1.0
        meter.tick()
    (bob,) = meter.groups()
    assert meter.cores == pytest.approx(0.5), "it works for itself"
    assert bob.cores < 0.001
    for _ in range(60):
        for _ in range(100):
            meter.note(b"t|ann|1", False, 0.0025)
        clock.now_s += 1.0
        meter.tick()
    assert meter.groups()[0].group == b"t|ann|"
    assert sum(one.cores for one in meter.groups()) == pytest.approx(meter.cores), "one that is busy lays all on keys"


def test_calls_that_are_quick_count_together_and_slow_ones_up_to_a_bound() -> None:
    clock = Clock()
    quick = [(b"t|ann|1", False, 0.0001, 1)] * 12
    meter = metered(clock, *quick, (b"t|bob|1", False, 3.0, 1))
    shares = {one.group: one.cores for one in meter.groups()}
    assert shares[b"t|bob|"] / shares[b"t|ann|"] == pytest.approx(0.0052 / 0.001)
    meter.grouping = lambda: Grouping((Placement(b"t|", level=0),))
    meter.note(b"t|ann|1", False, 0.001)
    meter.tick()
    assert b"t|" in {one.group for one in meter.groups()}


def test_home_ranges_are_told_in_parts_by_rows_and_by_heat() -> None:
    engine, clock = Engine(), Clock()
    for user in "abcdefgh":
        for number in range(100):
            engine.put(b"p|%s|%03d" % (user.encode(), number), b"x" * 9)
    known = ClusterMap("twip", 1, home_ranges=(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b")))
    calls = [(b"p|c|001", True, 0.004, 1), (b"p|f|001", False, 0.001, 1), (b"s|x|y", False, 0.002, 1)]
    meter = metered(clock, *calls)
    parts = list(heat_of_ranges(engine, meter, known, "a"))
    assert sum(part.keys for part in parts) == 800
    assert sum(part.bytes for part in parts) == 800 * 16
    assert [part.first for part in parts] == sorted({part.first for part in parts})
    assert len(parts) > 4
    (hot,) = (part for part in parts if part.first == b"p|c|")
    assert hot.last == b"p|c}", "what is hot is a part of its own"
    assert hot.cores == pytest.approx(0.5 * 4 / 7)
    assert hot.writes == 1.0
    assert sum(part.cores for part in parts) == pytest.approx(0.5 * 5 / 7)
    (other,) = heat_of_ranges(engine, meter, known, "b")
    assert other.keys == 0
    assert other.cores == pytest.approx(0.5 * 2 / 7)
    assert not list(heat_of_ranges(engine, meter, known, ""))


@pytest.mark.parametrize(
    ("read", "groups", "ranges", "cores"),
    [
        ([b"t|"], [b"t|ann|"], [], 0.0),
        ([b"p|"], [b"p|bob|"], [b"p|bob|"], 0.0),
        ([b"p|bob|"], [b"p|bob|"], [], 0.0),
        ([b""], [b"t|ann|", b"p|bob|"], [b"p|bob|", b"p|c|"], 0.5),
        ([], [], [], 0.0),
    ],
)
def test_a_caller_sees_the_heat_of_the_keys_that_it_may_read(
    read: list[bytes], groups: list[bytes], ranges: list[bytes], cores: float
) -> None:
    heat = pb.HeatStatistics(
        cores=0.5,
        groups=[pb.GroupHeat(group=b"t|ann|"), pb.GroupHeat(group=b"p|bob|")],
        ranges=[pb.RangeHeat(first=b"p|bob|", last=b"p|c|"), pb.RangeHeat(first=b"p|c|")],
    )
    reply = pb.StatsReply(heat=heat)
    Trims(Engine()).trim_of(f"{SERVICE_PATH}Stats")(Role("one", {Right.READ: read}), reply)
    assert [one.group for one in reply.heat.groups] == groups
    assert [one.first for one in reply.heat.ranges] == ranges
    assert reply.heat.cores == cores


def test_each_key_of_a_call_with_many_has_its_share() -> None:
    clock = Clock()
    meter = HeatMeter(clock, clock.process_s)
    sink = HeatedCalls(meter)
    call = Call("MultiPut", (), "", is_open_ended=False)
    call.request = pb.MultiPutRequest(keys=[b"p|ann|1", b"p|bob|1", b"p|liz|1"])
    for _ in range(60):
        sink.opened(call)(grpc.StatusCode.OK, 0.001)
    clock.now_s += 1.0
    meter.tick()
    assert {one.group for one in meter.groups()} == {b"p|ann|", b"p|bob|", b"p|liz|"}


def _commands_of_three(count: int) -> Iterator[tuple[int, list[bytes]]]:
    for number in range(count):
        name = (b"ann", b"bob", b"liz")[number % 3]
        yield (SCAN, [b"t|" + name + b"|", b"t|" + name + b"}"]) if number % 2 else (GET, [b"t|" + name + b"|1"])


@pytest.mark.parametrize("is_quick", [False, pytest.param(True, marks=pytest.mark.skipif(core is None, reason="core"))])
def test_each_key_of_a_batch_has_its_share(is_quick: bool) -> None:
    clock = Clock()
    meter = HeatMeter(clock, clock.process_s)
    sink = HeatedCalls(meter)
    commands = list(_commands_of_three(6))
    kinds = bytes(kind for kind, _ in commands)
    request = pb.ExecuteRequest(batch=1, kinds=kinds, arguments=[key for _, keys in commands for key in keys])
    batch: BatchRequest = request
    if is_quick:
        quick = run_quick(
            Executor(Engine(), 1, commands_max=100, reply_bytes_max=1000, rows_max=5), request.SerializeToString()
        )
        assert quick is not None
        batch = quick
    for _ in range(600):
        sink.executed(batch, pb.ExecuteReply(), ONE_PIECE, 0.001)
    clock.now_s += 1.0
    meter.tick()
    shares = {one.group: one.reads for one in meter.groups()}
    assert set(shares) == {b"t|ann|", b"t|bob|", b"t|liz|"}
    assert sum(shares.values()) == pytest.approx(3600)
    # Of 600 samples, a third each: 10 times the deviation.
    assert all(one == pytest.approx(1200, abs=700) for one in shares.values())


@pytest.mark.parametrize("request_", [None, BadRequestError("no message")])
def test_a_call_without_a_request_has_no_heat(request_: object) -> None:
    clock = Clock()
    meter = HeatMeter(clock, clock.process_s)
    call = Call("Put", (), "", is_open_ended=False)
    call.request = request_
    HeatedCalls(meter).opened(call)(grpc.StatusCode.INVALID_ARGUMENT, 0.001)
    clock.now_s += 1.0
    meter.tick()
    assert not meter.groups()
