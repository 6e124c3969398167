"""What a session of a simulated cluster knows of its own writes, when other clients write the same keys."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import RowChange

from pequod.cluster.map import ClusterMap
from pequod.freshness import Mark, Token
from tests.simulation.clusters import ClusterSchedule
from tests.simulation.database import Database
from tests.simulation.links import Network
from tests.simulation.loop import SimulatedLoop
from tests.simulation.members import history_name
from tests.simulation.oracle import WrongError
from tests.simulation.registry import Registry
from tests.simulation.truth import Session, Truth

KEY = b"p|zoe|0100"
REMOVAL = RowChange(KEY, None)
OTHERS = (RowChange(KEY, b"4"), REMOVAL)


def committed(*changes: RowChange) -> Truth:
    """Return what is known after commits of a database."""
    database = Database(Network(Random(1)), Random(1))
    truth = Truth({"b": database}, (), Registry(ClusterMap("twip", 1)))
    for change in changes:
        database.commit([change])
    return truth


def version_of(change: RowChange, since: int, *changes: RowChange) -> int:
    """Return the version of a write after commits."""

    async def main() -> int:
        return committed(*changes).version_of(change, since)

    return SimulatedLoop(1).run(main())


def test_a_removal_that_is_told_late_is_not_taken_for_that_of_another_client() -> None:
    """The session's token is of the state right after its own removal, in which the others' writes are not."""

    async def main() -> Session:
        schedule, session = ClusterSchedule(Random(1)), Session()
        database = schedule._databases["b"]

        async def remove(*_: Any) -> pb.RemoveReply:
            for change in (REMOVAL, *OTHERS):
                database.commit([change])
            token = Token({Mark(history_name("b"), 1): 1})
            return pb.RemoveReply(header=pb.Header(token=bytes(token)))

        server: Any = SimpleNamespace(is_up=True, service=SimpleNamespace(Remove=remove))
        await schedule._written(session, REMOVAL, [server])
        return session

    assert SimulatedLoop(1).run(main()).seen == {KEY: 1}


def test_a_write_is_a_version_that_was_made_since_the_client_began() -> None:
    assert version_of(REMOVAL, 1, REMOVAL, *OTHERS) == 1
    assert version_of(REMOVAL, 2, REMOVAL, *OTHERS) == 3
    assert version_of(OTHERS[0], 1, REMOVAL, *OTHERS) == 2


def test_a_removal_that_no_database_has_is_found_although_there_was_an_earlier_one() -> None:
    with pytest.raises(WrongError, match="acknowledged, and no database has it"):
        version_of(REMOVAL, 2, REMOVAL)
