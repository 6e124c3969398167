"""Whichever worker a client meets, it gets what an evaluation of the joins gives, and its reads see its writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.commands.kinds import COUNT, GET, PUT, REMOVE, SCAN
from pequod.engine.testing import NaiveModel
from tests.workers.conftest import TIMELINES, Workers

#: Runs of each test; `make soak-workers` makes more.
EXAMPLES = int(os.environ.get("PEQUOD_EXAMPLES", "25"))
JOINS = f"{TIMELINES}; karma|<author> = count vote|<author>|<voter>; best|<author> = copy karma|<author>"
NAMES = [b"ann", b"bob", b"liz", b"tom"]
KEYS = st.one_of(
    st.builds(lambda user, poster: b"s|%b|%b" % (user, poster), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.builds(lambda poster, at: b"p|%b|%010d" % (poster, at), st.sampled_from(NAMES), st.integers(0, 3)),
    st.builds(lambda author, voter: b"vote|%b|%b" % (author, voter), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    # Of tables that no join reads, and of none.
    st.sampled_from([b"note|ann|1", b"note|bob|2", b"plain", b"zz"]),
)
TABLES = [b"s|", b"p|", b"t|", b"vote|", b"karma|", b"best|", b"note|"]
RANGES = st.one_of(
    st.builds(lambda table, name: (table + name, table + name + b"}"), st.sampled_from(TABLES), st.sampled_from(NAMES)),
    st.sampled_from([(table, table[:-1] + b"}") for table in TABLES]),
    st.sampled_from([(b"", None), (b"k", b"t|bob|")]),
)
READ_KEYS = st.one_of(
    KEYS,
    st.builds(lambda table, name: table + name, st.sampled_from([b"karma|", b"best|"]), st.sampled_from(NAMES)),
    st.builds(
        lambda user, at, poster: b"t|%b|%010d|%b" % (user, at, poster),
        *(st.sampled_from(NAMES), st.integers(0, 3), st.sampled_from(NAMES)),
    ),
)
VALUES = st.sampled_from([b"1", b"2", b"hello"])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("put_all"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)),
    st.tuples(st.just("get"), READ_KEYS),
    st.tuples(st.just("get_all"), st.lists(READ_KEYS, min_size=1, max_size=4)),
    st.tuples(st.just("scan"), RANGES),
    st.tuples(st.just("count"), RANGES),
    st.tuples(
        st.just("batch"),
        st.lists(
            st.one_of(
                st.tuples(st.just(PUT), KEYS, VALUES),
                st.tuples(st.just(REMOVE), KEYS),
                st.tuples(st.just(GET), READ_KEYS),
                st.builds(lambda one: (SCAN, one[0], one[1] or b""), RANGES),
                st.builds(lambda one: (COUNT, one[0], one[1] or b""), RANGES),
            ),
            min_size=1,
            max_size=6,
        ),
    ),
)


class Met:
    """One worker, by a connection of a client that knows nothing but the .proto."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub: Any = PequodStub(self.channel)  # type: ignore[no-untyped-call]
        # Of a range that is not passed on: the worker that is met answers.
        reply = self.stub.Explain(pb.ExplainRequest(range=pb.Range(first=b"s|", last=b"s}")))
        self.id: int = reply.header.server_id
        self._batches: SimpleQueue[pb.ExecuteRequest | None] = SimpleQueue()
        # From the second batch of a stream on, the native core runs them.
        self._replies = self.stub.Execute(iter(self._batches.get, None))

    def pieces(self, request: pb.ExecuteRequest) -> Iterator[pb.ExecuteReply]:
        """Run a batch on the stream of this connection."""
        self._batches.put(request)
        for piece in self._replies:
            yield piece
            if not piece.more:
                return

    def close(self) -> None:
        self._batches.put(None)
        self.channel.close()


@pytest.fixture(scope="module")
def met() -> Iterator[list[Met]]:
    """A connection to each worker."""
    with Workers(3, "--joins", JOINS) as server:
        found: dict[int, Met] = {}
        while len(found) < 3:
            one = Met(server.target)
            if found.setdefault(one.id, one) is not one:
                one.close()
        yield list(found.values())
        for one in found.values():
            one.close()


class Session:
    """Steps at some workers, each compared with the model; reads show at least what was seen or written before."""

    def __init__(self, met: list[Met], *, has_token: bool) -> None:
        self._met = met
        self._has_token = has_token
        self._token = b""
        self._model = NaiveModel()
        for spec in parse(JOINS):
            self._model.add(spec)
        reply = met[0].stub.RemoveRange(pb.RemoveRangeRequest(first=b""))
        self._note(reply.header)

    def _note(self, header: pb.Header) -> None:
        if self._has_token:
            self._token = header.token

    def _freshness(self) -> dict[str, Any]:
        return {"freshness": pb.Freshness(after=self._token, wait_ms=20_000)} if self._token else {}

    def take(self, at: int, step: tuple[Any, ...]) -> None:
        met, model, level = self._met[at % len(self._met)], self._model, self._freshness()
        stub = met.stub
        match step:
            case "put", key, value:
                self._note(stub.Put(pb.PutRequest(key=key, value=value)).header)
                model.put(key, value)
            case "remove", key:
                reply = stub.Remove(pb.RemoveRequest(key=key))
                self._note(reply.header)
                assert reply.removed == model.remove(key)
            case "put_all", rows:
                keys, values = [key for key, _ in rows], [value for _, value in rows]
                self._note(stub.MultiPut(pb.MultiPutRequest(keys=keys, values=values)).header)
                for key, value in rows:
                    model.put(key, value)
            case "get", key:
                reply = stub.Get(pb.GetRequest(key=key, **level))
                self._note(reply.header)
                assert (reply.value if reply.HasField("value") else None) == model.get(key)
            case "get_all", keys:
                reply = stub.MultiGet(pb.MultiGetRequest(keys=keys, **level))
                self._note(reply.header)
                found = [
                    value if is_there else None for value, is_there in zip(reply.values, reply.present, strict=True)
                ]
                assert found == [model.get(key) for key in keys]
            case "scan", (first, last):
                rows = []
                for chunk in stub.Scan(pb.ScanRequest(first=first, last=last, **level)):
                    self._note(chunk.header)
                    rows += zip(chunk.keys, chunk.values, strict=True)
                assert rows == model.scan(first, last)
            case "count", (first, last):
                reply = stub.Count(pb.CountRequest(first=first, last=last, **level))
                self._note(reply.header)
                assert reply.count == len(model.scan(first, last))
            case "batch", commands:
                self._batch(met, commands, level)

    def _batch(self, met: Met, commands: list[tuple[Any, ...]], level: dict[str, Any]) -> None:
        kinds = bytes(command[0] for command in commands)
        arguments = [argument for command in commands for argument in command[1:]]
        request = pb.ExecuteRequest(batch=7, kinds=kinds, arguments=arguments, **level)
        keys: list[bytes] = []
        values: list[bytes] = []
        counts: list[int] = []
        statuses = b""
        for piece in met.pieces(request):
            assert not piece.errors
            keys += piece.keys
            values += piece.values
            counts += piece.counts
            statuses += piece.statuses
            if self._has_token and not piece.more:
                self._token = piece.token
        assert len(statuses) >= len(commands)
        wanted_rows: list[tuple[bytes, bytes]] = []
        wanted_values: list[bytes] = []
        wanted_counts: list[int] = []
        for kind, first, *rest in commands:
            if kind == PUT:
                self._model.put(first, rest[0])
            elif kind == REMOVE:
                self._model.remove(first)
            elif kind == GET:
                wanted_values += [value for value in [self._model.get(first)] if value is not None]
            elif kind == COUNT:
                wanted_counts.append(len(self._model.scan(first, rest[0] or None)))
            else:
                rows = self._model.scan(first, rest[0] or None)
                wanted_rows += rows
                wanted_values += [value for _, value in rows]
                wanted_counts.append(len(rows))
        assert keys == [key for key, _ in wanted_rows]
        assert values == wanted_values
        assert counts == wanted_counts


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 2), steps=st.lists(STEPS, min_size=1, max_size=25))
def test_one_connection_sees_its_own_writes_without_a_token(
    met: list[Met], at: int, steps: list[tuple[Any, ...]]
) -> None:
    session = Session(met[at:] + met[:at], has_token=False)
    for step in steps:
        session.take(0, step)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 2), STEPS), min_size=1, max_size=25))
def test_a_client_that_meets_all_workers_is_answered_exactly_with_its_token(
    met: list[Met], steps: list[tuple[int, tuple[Any, ...]]]
) -> None:
    session = Session(met, has_token=True)
    for at, step in steps:
        session.take(at, step)


def test_keys_of_the_home_alone_are_found_by_the_native_core_of_no_other_worker(met: list[Met]) -> None:
    # What other tests have left.
    met[0].stub.RemoveRange(pb.RemoveRangeRequest(first=b""))
    kinds, arguments = bytes([GET, SCAN, COUNT]), [b"note|ann|1", b"note|", b"note}", b"note|", b"note}"]
    for number, one in enumerate(met):
        value = b"%d" % number
        one.stub.Put(pb.PutRequest(key=b"note|ann|1", value=value))
        # From the second batch of a stream on, the core is asked first.
        for _ in range(3):
            (piece,) = one.pieces(pb.ExecuteRequest(batch=7, kinds=kinds, arguments=arguments))
            assert (list(piece.values), list(piece.keys)) == ([value, value], [b"note|ann|1"])
            assert list(piece.counts)[-1] == 1
