"""The server as a process: signals, and a client that knows nothing but the .proto."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pequod import Client
from pequod.errors import UnavailableError
from pequod.native import FLAVOUR
from tests.forked import ForkedServer, started_server
from tests.server.ending import heard

PROTO = Path(__file__).parents[2] / "proto"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_cleanly(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"pequod ({FLAVOUR}) serving on 127.0.0.1:")
        process.send_signal(number)
        assert process.wait(10) == 0
        assert heard(process.stderr.read()) == "pequod stopping\n"


def test_clients_that_only_listen_do_not_hold_up_the_end() -> None:
    with ForkedServer("--listen", "127.0.0.1:0", "--drain-s", "100", "--slow-ms", "0") as server:
        with Client(server.target) as client:
            client.put("a", "1")
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
            with pytest.raises(UnavailableError):
                client.get("a")
        assert heard(server.said.read()) == "pequod stopping\n"


CLIENT = """
import sys, grpc
sys.path.insert(0, sys.argv[1])
import pequod_pb2 as pb, pequod_pb2_grpc as rpc
with grpc.insecure_channel(sys.argv[2]) as channel:
    stub = rpc.PequodStub(channel)
    stub.AddJoin(pb.AddJoinRequest(text="t|<u>|<x>|<p> = check s|<u>|<p> copy p|<p>|<x>"))
    stub.Put(pb.PutRequest(key=b"s|ann|bob", value=b"1"))
    stub.Put(pb.PutRequest(key=b"p|bob|1", value=b"Hi"))
    for chunk in stub.Scan(pb.ScanRequest(first=b"t|ann|", last=b"t|ann}")):
        print(list(zip(chunk.keys, chunk.values)))
"""


def test_a_client_made_from_the_proto_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO / 'pequod/v1'}"]
    subprocess.run([*command, f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}", "pequod.proto"], check=True)
    with started_server() as (target, _):
        client = [sys.executable, "-c", CLIENT, str(tmp_path), target]
        result = subprocess.run(client, capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout == "[(b't|ann|1|bob', b'Hi')]\n"


def test_a_server_of_a_test_goes_on_however_much_it_says_that_nobody_reads() -> None:
    with ForkedServer("--listen", "127.0.0.1:0", "--slow-ms", "0.001") as server:
        with Client(server.target, retries=0) as client:
            for number in range(1000):
                client.put(f"a|{number:04}", "x")
            assert client.count(prefix="a|") == 1000
        server.terminate()
