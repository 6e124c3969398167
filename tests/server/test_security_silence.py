"""Notes on why a join shows nothing name tables and keys only to callers that may read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer

from tests.server import roles
from tests.server.roles import As

# Fixtures of this module.
server, stub = roles.server, roles.stub


@pytest.fixture
def access_file(tmp_path: Path) -> Path:
    """Write the access file, with one more table that authors may read."""
    path = tmp_path / "access.toml"
    path.write_text(
        roles.access_text("author", "root", "watch").replace('["s|", "p|"]\njoin', '["s|", "p|", "note|"]\njoin')
    )
    return path


async def test_tables_that_the_caller_may_not_read_are_not_suggested(server: PequodServer, stub: Any) -> None:
    server.engine.put(b"ssecret|1", b"")
    text = "t|<user>|<poster> = check s|<user>|<poster> copy p|<poster>|<user>|<user>|<user>"
    joined = "o|mine|<x> = check s|<x> copy ssecre|<x>"
    added = await As(stub, "root").AddJoin(pb.AddJoinRequest(text=f"{text}; {joined}"))
    assert any("'ssecret' meant" in note.text for join in added.joins for note in join.notes)
    explained = await As(stub, "root").Explain(pb.ExplainRequest(join="o"))
    assert [note.text for note in explained.join.notes] == [
        "0 of 1 key of 's|' match s|<x>: 's|ann|bob' has 3 parts, the pattern has 2",
        "no key and no join has the table 'ssecre'",
        "is the table 'ssecret' meant?",
    ]
    # It administers everything, and may read nothing.
    explained = await As(stub, "watch").Explain(pb.ExplainRequest(join="o"))
    assert explained.join.name == "o"
    assert list(explained.join.notes) == []
    explained = await As(stub, "watch").Explain(pb.ExplainRequest(range=pb.Range(first=b"ssecre|", last=b"ssecre}")))
    assert explained.WhichOneof("explanation") == "range"
    assert list(explained.range.notes) == []


async def test_who_installs_a_join_is_told_of_the_sources_that_it_may_read(server: PequodServer, stub: Any) -> None:
    text = "o|mine|<x:9> = check s|<x> copy p|<x>"
    (join,) = (await As(stub, "author").AddJoin(pb.AddJoinRequest(text=text))).joins
    assert [note.text.partition(" match ")[0] for note in join.notes] == ["0 of 1 key of 's|'", "0 of 2 keys of 'p|'"]


async def test_a_similar_table_is_not_told_to_who_installs_a_join(server: PequodServer, stub: Any) -> None:
    server.engine.put(b"notes|1", b"")
    request = pb.AddJoinRequest(text="o|mine|<x> = copy note|<x>")
    (join,) = (await As(stub, "author").AddJoin(request)).joins
    assert list(join.notes) == []
    (join,) = (await As(stub, "root").AddJoin(request)).joins
    assert [note.text for note in join.notes] == [
        "no key and no join has the table 'note'; is the table 'notes' meant?"
    ]
