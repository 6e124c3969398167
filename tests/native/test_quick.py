"""Batches that run natively beside those in Python: of the same requests, the same replies and the same state.

Both engines are native; what is compared is who reads the message, runs the commands and writes the reply.
"""

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import example, given
from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest
from pequod_server.access.grants import Right, Role
from pequod_server.access.guard import Caller
from pequod_server.steps.judges import RightsJudge
from pequod_server.steps.quick import run_quick

from pequod.commands.kinds import (
    ADD,
    COUNT,
    GET,
    PUT,
    PUT_IF,
    REMOVE,
    REMOVE_IF,
    SCAN,
    SCAN_DOWN,
    SCAN_LIMIT,
)
from pequod.engine.testing import NaiveModel
from tests.native.quick import JOINS, make_executor, quick_pieces, runs_without_python

#: Sets of joins: rows that others follow, slots of fixed widths, several sites at one source, keys known as a whole.
JOIN_SETS = [
    JOINS,
    JOINS + "; n|<user>|<poster> = count t|<user>|<time:2>|<poster>",
    "t|<user:1>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    JOINS + "; f|<poster>|<user> = copy s|<user>|<poster>; w|<time:2>|<poster> = copy p|<poster>|<time>",
    "t|<user>|<poster>|<time:2> = check s|<user>|<poster> check p|<user>|<time> copy p|<poster>|<time>",
    "t|<user>|<time:2>|<poster> = copy p|<poster>|<time> check s|<user>|<poster>",
    "t|<user>|<time:2>|<poster:1> = check s|<user>|<poster> copy p|<poster>|<time>",
    "t|<user>|<time:2>|<poster:3> = check s|<user>|<poster> copy p|<poster>|<time>",
]
#: Joins that came before and were dropped: tables are cut as these read them.
EARLIER = st.sampled_from(["", "y|<a> = count p|<a>|<b>", "y|<a:1> = count p|<a>|<b>; z|<a> = count s|<a>|<b>"])
#: Some hold the delimiter, as slots with a width may.
USERS = st.sampled_from([b"a", b"b", b"|", b"a|b"])
TIMES = st.integers(0, 30).map(lambda time: b"%02d" % time)
POSTS = st.builds(lambda user, time: b"p|%s|%s" % (user, time), USERS, TIMES)
SUBSCRIPTIONS = st.builds(lambda user, poster: b"s|%s|%s" % (user, poster), USERS, USERS)
CHECKS = st.builds(
    lambda user, time: (b"t|%s|%s" % (user, time), b"t|%s}" % user), st.sampled_from([b"a", b"b"]), st.just(b"") | TIMES
)
#: Client-written keys among the timelines, which no join computes, and what cannot be written at all.
STRAYS = st.sampled_from([b"t|a|x", b"t|b", b"t|a|05|b", b"c|a", b"loose", b"", b"x" * 30])
#: Keys of a table that no join reads.
PLAIN = TIMES.map(lambda time: b"k|" + time)
KEYS = POSTS | SUBSCRIPTIONS | STRAYS | PLAIN
RANGES = (
    CHECKS
    | st.tuples(PLAIN, PLAIN)
    | st.tuples(POSTS, POSTS)
    | st.tuples(KEYS, KEYS)
    | st.sampled_from([(b"", b""), (b"t|", b"t}"), (b"t|a", b"t|a}"), (b"p|", b"q"), (b"k|", b"k}")])
    | st.sampled_from([(b"p|a|", b"p|a}"), (b"n|", b"n}"), (b"f|a|", b"f|a}"), (b"w|", b"w}")])
)


VALUES = st.sampled_from([b"", b"1", b"value" * 3, b"long" * 20])


@st.composite
def requests(draw: st.DrawFn) -> ExecuteRequest:
    request = ExecuteRequest(batch=draw(st.integers(0, 9)))
    for kind in draw(
        st.lists(
            st.sampled_from(
                [
                    PUT,
                    PUT,
                    SCAN,
                    SCAN,
                    SCAN,
                    GET,
                    REMOVE,
                    SCAN_LIMIT,
                    SCAN_DOWN,
                    COUNT,
                    PUT_IF,
                    PUT_IF,
                    REMOVE_IF,
                    ADD,
                    ADD,
                ]
            )
        )
    ):
        request.kinds += bytes([kind])
        if kind in (SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT):
            request.arguments.extend(draw(RANGES))
        else:
            request.arguments.append(draw(KEYS))
        if kind in (PUT, PUT_IF):
            request.arguments.append(draw(VALUES))
        if kind in (PUT_IF, REMOVE_IF):
            request.arguments.append(draw(VALUES))
            # No condition has the number 4.
            request.numbers.append(draw(st.sampled_from([1, 1, 2, 2, 3, 3, 3, 4])))
        if kind == PUT_IF:
            # Deadlines are Python's.
            request.numbers.append(0)
        if kind == ADD:
            request.arguments.append(draw(st.sampled_from([b"1", b"-2", b"+30", b"0.5", b"one", b"9" * 18, b"9" * 60])))
        if kind in (SCAN_LIMIT, SCAN_DOWN):
            request.numbers.append(draw(st.integers(0, 4)))
    return request


CHECK = ExecuteRequest(kinds=bytes([SCAN]), arguments=[b"t|a|", b"t|a}"])
FILL = ExecuteRequest(kinds=bytes([PUT, PUT]), arguments=[b"s|a|b", b"", b"p|b|10", b"hi"])
#: A poster with the delimiter.
BARRED = ExecuteRequest(kinds=bytes([PUT, PUT]), arguments=[b"s|a|a|b", b"", b"p|a|b|10", b"hi"])
#: The two totals take all of a piece of 20 bytes.
TOTALS = ExecuteRequest(kinds=bytes([ADD, ADD, PUT]), arguments=[b"n|a", b"10", b"n|b", b"10", b"n|c", b"1"])
FOLLOW = ExecuteRequest(kinds=bytes([PUT, REMOVE]), arguments=[b"s|a|a", b"", b"s|a|b"])
STRAY = ExecuteRequest(kinds=bytes([SCAN, PUT, SCAN]), arguments=[*CHECK.arguments, b"t|a|x", b"!", *CHECK.arguments])


def test_keys_in_any_leaf_of_any_group_are_found() -> None:
    executor = make_executor(1 << 20, 1000)
    # Some tables are cut into groups, one is not; each has rows of several leaves.
    there = [
        b"%s%05d" % (prefix, number) for prefix in (b"k|", b"p|ab|", b"p|b|", b"s|a|") for number in range(0, 8000, 2)
    ]
    executor.engine.put_all(there, [key[-5:] for key in there])
    wanted = [key[:-5] + b"%05d" % (int(key[-5:]) + more) for key in there[:: len(there) // 300] for more in (0, 1)]
    wanted += [prefix + number for prefix in (b"k|", b"p|ab|", b"p|c|") for number in (b"", b"9")]
    for start in range(0, len(wanted), 100):
        keys = wanted[start : start + 100]
        (reply,) = quick_pieces(
            executor, ExecuteRequest(kinds=bytes([GET]) * len(keys), arguments=keys).SerializeToString()
        )
        held = [key for key, status in zip(keys, reply.statuses, strict=True) if not status]
        assert (held, list(reply.values)) == (
            [key for key in keys if executor.engine.get(key) is not None],
            [key[-5:] for key in held],
        )
        assert len(held) in (len(keys) // 2, len(keys) // 2 - 3), "half of the keys are there"


@given(
    st.lists(requests(), max_size=6),
    st.sampled_from([1, 20, 60, 200, 1 << 20]),
    st.sampled_from([1, 2, 5, 1000]),
    st.sampled_from(JOIN_SETS),
    EARLIER,
)
@example([FILL, CHECK, CHECK, STRAY, CHECK], 1 << 20, 1000, JOINS, "")
@example([FILL, CHECK, FOLLOW, CHECK], 1 << 20, 1000, JOINS, "")
@example([TOTALS], 20, 1000, JOINS, "")
@example([BARRED, CHECK, CHECK], 1 << 20, 1000, JOIN_SETS[-1], "y|<a> = count p|<a>|<b>")
def test_a_batch_that_runs_natively_answers_as_one_in_python(
    batches: Sequence[ExecuteRequest], reply_bytes_max: int, rows_max: int, joins: str, earlier: str
) -> None:
    native, python = (make_executor(reply_bytes_max, rows_max, joins, earlier) for _ in range(2))
    model = NaiveModel()
    for spec in parse(joins):
        model.add(spec)
    for now, request in enumerate(batches):
        for executor in (native, python):
            executor.engine.tell_time(now)
        assert quick_pieces(native, request.SerializeToString()) == python.execute(request)
        native.engine._check()
        model.base = dict(zip(*native.engine.base_rows(), strict=True))
        for check in ((b"t|a|", b"t|a}"), (b"t|b|", b"t|b}")):
            assert list(zip(*native.engine.scan(*check), strict=True)) == model.scan(*check)
            python.engine.scan(*check)
    assert native.engine.statistics().joins == python.engine.statistics().joins
    assert native.engine.base_rows() == python.engine.base_rows()
    assert native.engine.statistics().tables == python.engine.statistics().tables
    assert native.engine.ledger.computed_bytes == python.engine.ledger.computed_bytes


def test_what_sinks_look_at_is_that_of_the_batch() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.execute(FILL)
    request = ExecuteRequest(kinds=bytes([SCAN, PUT]), arguments=[*CHECK.arguments, b"", b""])
    quick = run_quick(executor, request.SerializeToString())
    assert quick is not None
    assert (quick.kinds, list(quick.arguments), len(quick.keys)) == (request.kinds, list(request.arguments), 1)
    assert [error.reason for error in quick.errors] == ["InvalidKeyError"]


def test_a_batch_over_many_tables_reads_and_writes_each_of_its_keys() -> None:
    executor = make_executor(1 << 20, 1000)
    keys = [b"%c%c|%d" % (97 + table, 97 + table, number) for number in range(4) for table in range(9)]
    executor.engine.put_all(keys, keys)
    gets = ExecuteRequest(kinds=bytes([GET] * len(keys)), arguments=keys)
    (reply,) = quick_pieces(executor, gets.SerializeToString())
    assert list(reply.values) == keys
    puts = ExecuteRequest(kinds=bytes([PUT] * len(keys)), arguments=[one for key in keys for one in (key, b"!" + key)])
    (reply,) = quick_pieces(executor, puts.SerializeToString())
    assert reply.statuses == bytes(len(keys))
    assert [executor.engine.get(key) for key in keys] == [b"!" + key for key in keys]
    executor.engine._check()


def test_rows_within_what_is_materialised_are_read_without_python() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.execute(FILL)
    executor.execute(CHECK)
    (key,) = executor.engine.scan(b"t|a|", b"t|a}", limit=1).keys
    assert runs_without_python(executor, (GET, key), (SCAN, key, key + b"\0"), (SCAN, key, b"t|a|20"))


def test_a_second_check_is_answered_without_python() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.execute(FILL)
    executor.execute(CHECK)
    assert runs_without_python(executor, (SCAN, b"t|a|", b"t|a}"), (SCAN_LIMIT, b"t|a|", b"t|a}", 1))
    assert executor.engine.statistics().joins["t"].hits == 2


def test_all_kinds_are_quick_in_a_table_that_no_join_reads_or_computes() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.engine.put(b"k|20", b"old")
    revision = executor.engine.revision
    commands = [(PUT, b"k|10", b"1"), (PUT, b"k|20", b"new"), (GET, b"k|10"), (GET, b"k|15"), (COUNT, b"k|", b"k}")]
    assert runs_without_python(executor, *commands, (SCAN, b"k|", b"k}"), (SCAN_DOWN, b"k|", b"k|30", 1))
    assert executor.engine.revision == revision + 2
    assert runs_without_python(executor, (REMOVE, b"k|20"), (REMOVE, b"k|20"), (SCAN_LIMIT, b"k|", b"k}", 1))
    assert executor.engine.base_rows() == ([b"k|10"], [b"1"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([GET, GET, GET, PUT, REMOVE]), st.integers(0, 40).map(lambda number: b"k|%02d" % number)
        ),
        min_size=8,
        max_size=40,
    )
)
@example([(GET, b"k|%02d" % number) for number in range(20, 27)] + [(REMOVE, b"k|20"), (GET, b"k|24"), (GET, b"k|21")])
def test_a_get_sees_the_writes_of_its_batch_before_it(commands: list[tuple[int, bytes]]) -> None:
    executor = make_executor(1 << 20, 1000)
    present = {b"k|%02d" % number: b"%d" % number for number in range(0, 41, 2)}
    executor.engine.put_all(list(present), list(present.values()))
    request, statuses, values = ExecuteRequest(kinds=bytes([kind for kind, _ in commands])), bytearray(), []
    for at, (kind, key) in enumerate(commands):
        request.arguments.extend([key, b"new%d" % at] if kind == PUT else [key])
        statuses.append(kind != PUT and key not in present)
        if kind == PUT:
            present[key] = b"new%d" % at
        elif kind == REMOVE:
            present.pop(key, None)
        elif key in present:
            values.append(present[key])
    (reply,) = quick_pieces(executor, request.SerializeToString())
    assert (reply.statuses, list(reply.values)) == (bytes(statuses), values)


def test_timelines_are_told_of_posts_and_subscriptions_without_python() -> None:
    executor = make_executor(1 << 20, 1000, JOIN_SETS[2])
    executor.execute(FILL)
    executor.execute(CHECK)
    executor.engine.put(b"s|a|c", b"")
    executor.execute(CHECK)
    assert runs_without_python(executor, (PUT, b"p|b|20", b"new"), (SCAN, b"t|a|11", b"t|a}"))
    assert runs_without_python(executor, (REMOVE, b"s|a|c"), (PUT, b"s|a|d", b""))
    assert executor.engine.statistics().joins["t"].log_entries == 2
    executor.engine._check()


class _Writer(Caller):
    """May write two ranges."""

    def __init__(self) -> None:
        pass

    def role(self) -> Role:
        return Role("writer", {Right.WRITE: [b"k|0", b"k|1"]})


def test_a_batch_that_a_judge_does_not_pass_as_a_whole_is_left_to_python() -> None:
    executor, judge = make_executor(1 << 20, 1000), RightsJudge(_Writer())
    request = ExecuteRequest(kinds=bytes([PUT, PUT]), arguments=[b"k|10", b"", b"k|20", b""])
    assert run_quick(executor, request.SerializeToString(), (judge,)) is None
    assert not executor.engine.base_rows().keys
    reply = executor.steps(request, (judge,)).run()
    assert isinstance(reply, ExecuteReply)
    assert reply.statuses == b"\0\2"
    request.arguments[2] = b"k|11"
    quick = run_quick(executor, request.SerializeToString(), (judge,))
    assert quick is not None
    assert ExecuteReply.FromString(quick.reply or b"").statuses == bytes(2)


def test_a_write_that_is_watched_is_told() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.engine.put(b"k|10", b"1")
    watch = executor.engine.watch(b"k|", b"k}", lambda: None)
    executor.engine.settle(watch)
    assert not runs_without_python(executor, (PUT, b"k|10", b"2")), "Python tells the watch"
    executor.execute(ExecuteRequest(kinds=bytes([PUT]), arguments=[b"k|10", b"2"]))
    assert [(change.key, change.new) for change in executor.engine.settle(watch)] == [(b"k|10", b"2")]
    executor.engine.unwatch(watch)
    assert runs_without_python(executor, (PUT, b"k|10", b"3"))


def test_a_new_table_is_watched_from_its_first_write_on() -> None:
    executor = make_executor(1 << 20, 1000)
    watch = executor.engine.watch(b"", None, lambda: None)
    executor.engine.put(b"k|10", b"1")
    executor.engine.settle(watch)
    assert not runs_without_python(executor, (PUT, b"k|11", b"2"))


def test_writes_that_are_to_be_weighed_are_not_quick() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.engine.put(b"k|10", b"1")
    executor.engine.limit_memory(1 << 20)
    executor.engine.ledger.weigh_next()
    assert not runs_without_python(executor, (PUT, b"k|10", b"2"))
    executor.engine.put(b"k|10", b"2")
    assert runs_without_python(executor, (PUT, b"k|10", b"3"))
    assert not runs_without_python(executor, (PUT, b"k|10", b"v" * 61)), "too long"
    assert not runs_without_python(executor, (PUT, b"k|" + b"1" * 19, b"")), "too long"
