"""What the server writes to standard error, and what it must not write."""

import asyncio
import io
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.ops.logs import CallLog, formatter
from pequod_server.ops.observe import CallObserver
from pequod_server.wire.handlers import written

from pequod import Client
from pequod.commands import kinds as commands
from pequod.native import FLAVOUR
from tests.forked import run_command

SECRET = b"the-value-that-is-nobodys-business"

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """All lines logged so far, as a program reads them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter("json"))
    root, level = logging.getLogger(), logging.getLogger("pequod").level
    root.addHandler(handler)
    logging.getLogger("pequod").setLevel("DEBUG")
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)
    logging.getLogger("pequod").setLevel(level)
    assert SECRET.decode() not in stream.getvalue()


async def _started(slow_ms: float) -> tuple[PequodServer, str]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", slow_ms=slow_ms, drain_s=0.5))
    return server, f"127.0.0.1:{await server.start()}"


@pytest.fixture
async def slow() -> AsyncIterator[Any]:
    """A stub of a server that thinks everything slow."""
    server, target = await _started(1e-6)
    async with aio.insecure_channel(target) as channel:
        yield PequodStub(channel)  # type: ignore[no-untyped-call]
    await server.stop()


async def test_a_slow_call_is_logged_with_its_range_and_rows(slow: Any, lines: Lines) -> None:
    for poster in range(3):
        await slow.Put(pb.PutRequest(key=b"p|%d" % poster, value=SECRET))
    name = (("x-request-id", "my-scan"),)
    assert [chunk async for chunk in slow.Scan(pb.ScanRequest(first=b"p|", last=b"p}"), metadata=name)]
    await slow.Stats(pb.StatsRequest())
    *puts, scan, _ = lines()
    assert [(put["event"], put["method"], put["key"]) for put in puts] == [
        ("slow call", "Put", f"p|{poster}") for poster in range(3)
    ]
    assert len({put["request_id"] for put in puts}) == 3
    scan.pop("message", None)  # pytest's own handler leaves it on the record
    assert scan.pop("ms") > 0 and scan.pop("timestamp").endswith("Z")
    assert scan == {
        "event": "slow call",
        "level": "warning",
        "logger": "pequod.server",
        "request_id": "my-scan",
        "method": "Scan",
        "code": "OK",
        "first": "p|",
        "last": "p}",
        "rows": 3,
        "rows_computed": 0,
    }


async def test_a_client_that_reads_slowly_does_not_make_a_scan_slow(lines: Lines) -> None:
    server, target = await _started(1000)
    for number in range(40):
        server.engine.put(b"big|%02d" % number, b"v" * 1_000_000)
    async with aio.insecure_channel(target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        scan = stub.Scan(pb.ScanRequest(first=b"big|"))
        await scan.read()
        # The server fills what may be under way, and waits.
        await asyncio.sleep(1.2)
        while await scan.read() is not aio.EOF:
            pass
    await server.stop()
    (line,) = lines()
    assert (line["event"], line["method"], line["rows"]) == ("call", "Scan", 40)


async def test_a_slow_batch_is_logged_with_its_kinds_but_without_what_it_writes(slow: Any, lines: Lines) -> None:
    stream = slow.Execute(metadata=(("x-request-id", "my-stream"),))
    kinds = bytes([commands.PUT, commands.PUT, commands.SCAN])
    arguments = [b"k" * 500, SECRET, b"b|\xff\n", SECRET, b"b|", b"b}"]
    await stream.write(pb.ExecuteRequest(kinds=kinds, arguments=arguments))
    await stream.read()
    await stream.done_writing()
    assert await stream.code() is grpc.StatusCode.OK
    batch, *rest = lines()
    assert (batch["event"], batch["request_id"]) == ("slow batch", "my-stream")
    assert (batch["commands"], batch["kinds"], batch["rows"], batch["failed"]) == (3, {"PUT": 2, "SCAN": 1}, 1, 0)
    assert batch["rows_computed"] == 0
    assert batch["first"] == "k" * 64 + "… (500)"
    assert all(line["event"] == "call" for line in rest), "a stream is not slow for being long"


async def test_slow_reads_are_logged_with_the_rows_that_they_computed(slow: Any, lines: Lines) -> None:
    await slow.AddJoin(
        pb.AddJoinRequest(text="t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>")
    )
    await slow.MultiPut(pb.MultiPutRequest(keys=[b"p|bob|%04d" % number for number in range(30)], values=[b""] * 30))
    for user in (b"ann", b"liz"):
        await slow.Put(pb.PutRequest(key=b"s|%s|bob" % user, value=b""))
    for _ in range(2):
        _ = [chunk async for chunk in slow.Scan(pb.ScanRequest(prefix=b"t|ann|"))]
    stream = slow.Execute()
    await stream.write(pb.ExecuteRequest(kinds=bytes([commands.SCAN]), arguments=[b"t|liz|", b"t|liz}"]))
    await stream.read()
    await stream.done_writing()
    await stream.code()
    assert [line["prefix"] for line in lines() if line["method"] == "Scan"] == ["t|ann|"] * 2
    logged = [(line["method"], line["rows_computed"]) for line in lines() if "rows_computed" in line]
    assert [one for one in logged if one[0] in ("Scan", "Execute")] == [("Scan", 30), ("Scan", 0), ("Execute", 30)]


@pytest.mark.parametrize("slow_ms", [0, 60_000])
async def test_calls_that_are_not_slow_are_logged_for_debugging_only(slow_ms: float, lines: Lines) -> None:
    server, target = await _started(slow_ms)
    async with aio.insecure_channel(target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        await stub.Put(pb.PutRequest(key=b"a\x1b[31m", value=SECRET))
        with pytest.raises(aio.AioRpcError):
            await stub.Put(pb.PutRequest(value=SECRET))
        # A call may still be logged when the client has its answer.
        await server._calls.drain(10)
        logging.getLogger("pequod").setLevel("INFO")
        await stub.Get(pb.GetRequest(key=b"a"))
    await server.stop()
    put, refused = lines()
    assert (put["event"], put["level"], put["code"], put["key"]) == ("call", "debug", "OK", r"a\x1b[31m")
    assert (refused["event"], refused["code"]) == ("call", "INVALID_ARGUMENT")


class Faulty(grpc.GenericRpcHandler):
    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        async def fail(_request: bytes, _context: object) -> bytes:
            value = SECRET.decode()
            raise ZeroDivisionError(f"a bug, met with {len(value)} bytes")

        return grpc.unary_unary_rpc_method_handler(fail)


async def test_a_fault_of_the_server_is_logged_with_its_traceback_and_the_request(
    lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    server = aio.server(interceptors=[CallObserver([CallLog(None, lambda: 0)])])
    server.add_generic_rpc_handlers((Faulty(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/a.B/C")
        with pytest.raises(aio.AioRpcError) as caught:
            await call(b"", metadata=(("x-request-id", "unlucky"),))
    # The line of the call is written after its status is sent.
    await server.stop(5)
    ours = [line for line in lines() if line["logger"] == "pequod.server"]
    defect, failed = ours
    assert (failed["event"], failed["level"], failed["code"]) == ("failed call", "error", "UNKNOWN")
    assert defect["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert {line["request_id"] for line in ours} == {"unlucky"}
    assert caught.value.details() == "a defect of the server; its log has it under the request unlucky"
    for_people = "\n".join(map(formatter("console").format, caplog.records))
    assert "ZeroDivisionError: a bug" in for_people
    assert SECRET.decode() not in for_people


def test_lines_for_people_have_everything_too() -> None:
    record = logging.LogRecord("pequod.server", logging.WARNING, "x.py", 1, "slow %s", ("call",), None)
    record.ms = 12.5
    text = formatter("console").format(record)
    assert "slow call" in text and "ms=12.5" in text and "warning" in text and "\x1b" not in text


def test_the_process_logs_lines_of_json_between_its_first_and_its_last_words() -> None:
    # It starts as a shell starts it: what is imported at first must log as the rest does.
    options = ["--log-format", "json", "--log-level", "debug", "--metrics", "127.0.0.1:0"]
    command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith(f"pequod ({FLAVOUR}) serving on 127.0.0.1:")
        with Client(first.split()[-1]) as client:
            client.put("a|b", SECRET)
        process.send_signal(signal.SIGTERM)
        text = process.stderr.read()
        assert process.wait(10) == 0
    *logged, last = text.splitlines()
    assert SECRET.decode() not in text
    # A stream that its client ended is closed as soon as gRPC says so, which may be after the signal.
    found = [json.loads(line) for line in (*logged, last) if line != "pequod stopping"]
    assert len(found) == len(logged)
    events = {line["event"]: line for line in found}
    assert events["serving metrics"]["url"].startswith("http://127.0.0.1:")
    assert events["call"]["method"] == "Execute"


@pytest.mark.parametrize(
    ("option", "value"),
    [("--log-format", "xml"), ("--log-level", "loud"), ("--slow-ms", "-1"), ("--metrics", "nowhere")],
)
def test_bad_settings_are_refused_by_name(option: str, value: str) -> None:
    refused = run_command("serve", "--listen", "127.0.0.1:0", option, value)
    assert refused.err.startswith(f"pequod: {option} = '{value}': must be")
    assert refused.code == 2


def test_an_address_that_cannot_be_listened_on_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        metrics = f"127.0.0.1:{other.getsockname()[1]}"
        refused = run_command("serve", "--listen", "127.0.0.1:0", "--metrics", metrics)
    assert refused.err.startswith("pequod: cannot listen on 127.0.0.1:")
    assert refused.code == 3


@pytest.mark.parametrize("name", ["Scan", "Watch"])
async def test_a_client_that_leaves_its_stream_is_no_error(lines: Lines, name: str) -> None:
    server, target = await _started(1e9)
    for number in range(100):
        server.engine.put(b"k|%03d" % number, bytes(100_000))
    requests = {"Scan": pb.ScanRequest(prefix=b"k|"), "Watch": pb.WatchRequest(first=b"k|", last=b"k}", rows=True)}
    for _ in range(5):
        async with aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            begin: Any = channel.unary_stream(f"/pequod.v1.Pequod/{name}")
            calls = [begin(requests[name].SerializeToString()) for _ in range(20)]
            await asyncio.gather(*[call.read() for call in calls])
            await asyncio.sleep(0.1)
            for call in calls:
                call.cancel()
    await server.stop()
    assert [line for line in lines() if line["level"] not in ("debug", "info")] == []


async def test_a_write_that_fails_ends_the_call_as_its_client_has_left_it() -> None:
    class Left:
        async def write(self, _message: bytes) -> None:
            raise aio.InternalError

    left: Any = Left()
    with pytest.raises(asyncio.CancelledError):
        await written(left, b"")
