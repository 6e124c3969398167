"""The TypeScript client keeps the servers of groups through changes: those that the Python client finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.owners import Owners, Rankings
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from tests.typescript.node import compiled, run_node

COMPUTE: Final = frozenset({ServerRole.COMPUTE})
GROUPS: Final = [f"t|{number}|" for number in range(25)]


def states() -> list[list[ServerEntry]]:
    """Return computes that come, go, drain and get other weights, in states that follow each other."""
    found = []
    for at in range(30):
        there = [number for number in range(40 + at % 4) if number % 11 != at % 5]
        found.append(
            [
                ServerEntry(
                    f"c{number:02}",
                    f"127.0.0.1:{7000 + number}",
                    COMPUTE,
                    weight=1.0 + (number + at // 20) % 3,
                    zone="xy"[number % 2],
                    state=ServerState.DRAINING if number % 9 == at % 7 else ServerState.READY,
                )
                for number in there
            ]
        )
    return found


@pytest.mark.parametrize("zone", ["", "x"])
async def test_the_servers_of_groups_are_those_of_the_python_client_through_changes(tmp_path: Path, zone: str) -> None:
    given = [
        [{"id": one.id, "weight": one.weight, "zone": one.zone, "state": one.state} for one in servers]
        for servers in states()
    ]
    file = tmp_path / "states.json"
    file.write_text(json.dumps({"states": given, "groups": GROUPS}))
    code, said = await run_node(compiled() / "test/ranks.js", file, zone)
    assert code == 0, said
    lines = [json.loads(line) for line in said.splitlines()]
    assert len(lines) == len(given)
    kept_count = 0
    for servers, line in zip(states(), lines, strict=True):
        owners = Owners(ClusterState.of(ClusterMap("twip", 1), servers), Rankings(zone))
        for group, found, whole in zip(GROUPS, line["found"], line["all"], strict=True):
            wanted = [one.id for one in owners.all_readers(group.encode())]
            assert whole == wanted
            if found is not None:
                kept_count += 1
                assert len(found) > 3
                assert found == wanted[: len(found)]
    assert kept_count > len(lines) * len(GROUPS) * 0.8
