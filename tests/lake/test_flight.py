"""Rows come and go over gRPC in columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pequod_lake import IngestLimits, Lake
from pequod_lake.flight import LakeFlightServer
from pyarrow import flight

SCHEMA = """
[[table]]
name = "plain"
key = ["id"]
columns = { id = "int64", body = "text" }

[[table]]
name = "other"
key = ["id"]
columns = { id = "int64" }
"""


@pytest.fixture
def served(make: Callable[[str], Lake]) -> Iterator[tuple[Lake, LakeFlightServer, Any]]:
    lake = make(SCHEMA)
    server = LakeFlightServer(lake, "grpc://127.0.0.1:0", IngestLimits(scu_age_s=0.0), bytes_max=10_000)
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        yield lake, server, client
    server.close()


def put(client: Any, upload: str, table: str, rows: dict[str, list[Any]], **more: bool) -> None:
    batch = pa.table(rows)
    command = json.dumps({"upload": upload, "table": table, **more}).encode()
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    with writer:
        writer.write_table(batch)


def act(client: Any, kind: str, upload: str) -> list[Any]:
    body = json.dumps({"upload": upload}).encode()
    return [json.loads(one.body.to_pybytes()) for one in client.do_action(flight.Action(kind, body))]


def get(client: Any, **query: Any) -> Any:
    return client.do_get(flight.Ticket(json.dumps(query).encode())).read_all()


def test_streams_of_an_upload_become_visible_together_at_its_commit(served: tuple[Lake, LakeFlightServer, Any]) -> None:
    _, _, client = served
    put(client, "one", "plain", {"id": [1, 2], "body": ["a", "b"]})
    put(client, "one", "other", {"id": [7]})
    assert get(client, table="plain").num_rows == 0
    assert act(client, "commit", "one") == [{"scu": 1, "is_repeated": False}]
    found = get(client, table="plain", where=[["id", ">", 1]], columns=["body"], freshness="newest")
    assert (found.to_pydict(), found.schema.metadata[b"scu"]) == ({"body": ["b"]}, b"1")
    assert get(client, table="other").num_rows == 1
    put(client, "one", "plain", {"id": [3], "body": ["again"]})
    assert act(client, "commit", "one") == [{"scu": 1, "is_repeated": True}]
    assert act(client, "commit", "one") == [{"scu": 1, "is_repeated": True}]
    put(client, "two", "plain", {"id": [1]}, delete=True)
    assert act(client, "commit", "two")[0]["scu"] == 2
    assert get(client, table="plain").to_pydict() == {"id": [2], "body": ["b"]}


def test_an_upload_that_breaks_leaves_nothing(served: tuple[Lake, LakeFlightServer, Any]) -> None:
    lake, _, client = served
    put(client, "gone", "plain", {"id": [1], "body": ["a"]})
    assert act(client, "abort", "gone") == []
    with pytest.raises(pa.ArrowInvalid, match="no open upload"):
        act(client, "commit", "gone")
    put(client, "half", "other", {"id": [1]})
    with pytest.raises(pa.ArrowInvalid, match="fit"):
        put(client, "half", "plain", {"id": ["x"], "body": ["a"]})
    with pytest.raises(pa.ArrowInvalid, match="not ended well"):
        act(client, "commit", "half")
    with pytest.raises(pa.ArrowInvalid, match="an object with"):
        get(client, tables="x")
    assert lake.catalog.snapshot().scu == 0


def test_too_many_rows_that_wait_are_refused_as_unavailable(served: tuple[Lake, LakeFlightServer, Any]) -> None:
    _, _, client = served
    put(client, "large", "plain", {"id": list(range(1000)), "body": ["x" * 20] * 1000})
    with pytest.raises(flight.FlightUnavailableError, match="busy"):
        put(client, "more", "plain", {"id": [1], "body": ["a"]})
    assert act(client, "commit", "large")[0]["scu"] == 1
    put(client, "later", "plain", {"id": [1], "body": ["a"]})
    assert act(client, "commit", "later")[0]["scu"] == 2
