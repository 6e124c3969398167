"""Batches are divided by server and put together again: no command is lost, and each keeps its place."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pequod.calls import Result
from pequod.client.cluster.address import ClusterTarget
from pequod.client.cluster.dividing import DividedBatch, divided, in_runs, writes_of
from pequod.client.cluster.node import Node
from pequod.client.columns import Columns, Reply, written_keys
from pequod.client.stream import Deliver
from pequod.errors import ClosedError, PequodError, SettingError
from pequod.freshness import ANY, LATEST, Mark, Token, after

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
LEVELS = st.none() | st.sampled_from([ANY, LATEST, after(Token({Mark(b"base", 1): 3}))])
COMMANDS = st.lists(
    st.tuples(st.just("get"), KEYS, LEVELS)
    | st.tuples(st.just("put"), KEYS)
    | st.tuples(st.just("remove"), KEYS)
    | st.tuples(st.just("scan"), KEYS, LEVELS)
    | st.tuples(st.just("limit"), KEYS, st.integers(1, 9))
    | st.tuples(st.just("down"), KEYS, st.integers(1, 9))
    | st.tuples(st.just("count"), KEYS, LEVELS),
    min_size=1,
    max_size=20,
)


def columns_of(commands: list[tuple[Any, ...]]) -> Columns:
    columns = Columns()
    # Each part is on behalf of the same caller.
    columns.trace = (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),)
    for name, key, *rest in commands:
        match name:
            case "get":
                columns.get(key, freshness=rest[0])
            case "put":
                columns.put(key, b"=" + key)
            case "remove":
                columns.remove(key)
            case "scan":
                columns.scan(key, key + b"}", freshness=rest[0])
            case "limit":
                columns.scan(key, limit=rest[0])
            case "down":
                columns.scan(key, reverse=True, limit=rest[0])
            case "count":
                columns.count(key, freshness=rest[0])
    return columns


def same(one: Columns, other: Columns) -> bool:
    return one.message(1) == other.message(1)


def node(name: str) -> Node:
    return cast("Node", name)


@given(COMMANDS, st.booleans())
def test_each_command_goes_to_the_server_of_its_key_and_its_result_comes_back_to_its_place(
    commands: list[tuple[Any, ...]], is_apart: bool
) -> None:
    writer = "w" if is_apart else ""
    parts = divided(columns_of(commands), lambda key: node(key.decode()), lambda key: node(writer + key.decode()))
    assert len({place for place, _, _ in parts}) == len(parts)
    outcomes: list[Reply | PequodError] = []
    whole = DividedBatch(len(commands), outcomes.append, 0.0)
    for place, taken, positions in parts:
        mine = [commands[at] for at in positions]
        assert same(taken, columns_of(mine))
        assert list(positions) == sorted(positions)
        wanted = {(writer if name in ("put", "remove") else "") + key.decode() for name, key, *_ in mine}
        assert wanted == {place}
        assert not outcomes
        whole.take(positions, Reply(1, 7, 7, [cast("Result", at) for at in positions]))
    (outcome,) = outcomes
    assert not isinstance(outcome, PequodError)
    assert outcome.results == list(range(len(commands)))


@given(COMMANDS, st.data())
def test_some_commands_are_chosen_in_their_order(commands: list[tuple[Any, ...]], data: st.DataObject) -> None:
    at = sorted(data.draw(st.sets(st.sampled_from(range(len(commands))), min_size=1)))
    columns = columns_of(commands)
    assert same(columns.picked(at), columns_of([commands[one] for one in at]))
    writes = [one for one, command in enumerate(commands) if command[0] in ("put", "remove")]
    assert writes_of(columns) == writes
    assert written_keys(columns) == [commands[one][1] for one in writes]


@given(COMMANDS)
def test_a_run_has_writes_or_reads_and_comes_after_the_reply_to_the_one_before(
    commands: list[tuple[Any, ...]],
) -> None:
    outcomes: list[Reply | PequodError] = []
    sent: list[tuple[Columns, Deliver]] = []
    in_runs(columns_of(commands), lambda columns, deliver: sent.append((columns, deliver)), outcomes.append)
    done = 0
    while sent:
        ((columns, deliver),) = sent
        sent.clear()
        mine = commands[done : done + len(columns)]
        assert same(columns, columns_of(mine))
        names = ["w" if name in ("put", "remove") else "r" for name, *_ in mine]
        assert len(set(names)) == 1
        deliver(Reply(1, 7, done, [cast("Result", done + at) for at in range(len(mine))]))
        done += len(mine)
    (outcome,) = outcomes
    assert not isinstance(outcome, PequodError)
    assert outcome.results == list(range(len(commands)))


def test_a_reply_of_several_servers_names_none_and_has_all_tokens_and_the_greatest_age() -> None:
    outcomes: list[Reply | PequodError] = []
    one, other = Mark(b"base", 1), Mark(b"side", 1)
    whole = DividedBatch(3, outcomes.append, 0.0)
    whole.take([0], Reply(1, 7, 3, [b"x"], bytes(Token({one: 5})), 20))
    whole.take([2], Reply(1, 8, 9, [b"z"], bytes(Token({one: 4, other: 2})), 10))
    whole.fail([1], error := ClosedError())
    assert outcomes == [Reply(0, 0, 0, [b"x", error, b"z"], bytes(Token({one: 5, other: 2})), 20)]


def test_an_age_that_one_server_does_not_know_is_not_known() -> None:
    outcomes: list[Reply | PequodError] = []
    whole = DividedBatch(2, outcomes.append, 0.0)
    whole.take([0], Reply(1, 7, 3, [b"x"], b"", 20))
    whole.take([1], Reply(1, 7, 3, [b"y"], b"", None))
    assert outcomes == [Reply(0, 7, 3, [b"x", b"y"], b"", None)]


def test_a_batch_that_fails_as_a_whole_has_one_error() -> None:
    outcomes: list[Reply | PequodError] = []
    whole = DividedBatch(2, outcomes.append, 0.0)
    error = ClosedError()
    whole.fail([0], error)
    whole.fail([1], error)
    assert outcomes == [error]


@pytest.mark.parametrize("target", ["", "there", "there:1,", "there:0", "there:1?serve=s1", "there:1?server=s1&x="])
def test_a_target_that_names_no_cluster_is_refused(target: str) -> None:
    with pytest.raises(SettingError):
        ClusterTarget.parse(f"pequod+cluster://{target}")


def test_a_target_names_addresses_and_the_server_of_calls_about_a_server() -> None:
    assert ClusterTarget.parse("pequod+cluster://a:1,[::1]:2/?server=s1") == ClusterTarget(("a:1", "[::1]:2"), "s1")
    assert ClusterTarget.parse("pequod+cluster://a:1?zone=eu") == ClusterTarget(("a:1",), zone="eu")
    assert not ClusterTarget.is_one("127.0.0.1:7744")
