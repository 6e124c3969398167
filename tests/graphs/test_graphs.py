"""LinkBench's and TAOBench's operations on a social graph: as SQL has them, each read, and all after each refresh."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from pequod.client import Client
from tests.forked import started_server
from tests.graphs.graph import Graph
from tests.graphs.published import LINKBENCH, TAOBENCH, Mix

#: `make graphs` has more of both.
OPERATIONS = int(os.environ.get("PEQUOD_GRAPH_OPERATIONS", "300"))
NODES = int(os.environ.get("PEQUOD_GRAPH_NODES", "60"))
REFRESHES = 3


@pytest.mark.parametrize("mix", [LINKBENCH, TAOBENCH], ids=lambda mix: mix.name)
def test_each_read_and_each_refresh_is_as_sql_has_it(mix: Mix) -> None:
    with started_server() as (target, _), Client(target, timeout_s=120.0) as client:
        graph = Graph(client, mix, NODES, seed=1)
        counts = Counter([graph.compare() > 0])
        for _ in range(REFRESHES):
            for _ in range(OPERATIONS):
                graph.take()
            counts[graph.compare() > 0] += 1
    assert counts == {True: 1 + REFRESHES}
