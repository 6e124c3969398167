"""A server as a member of its cluster, with what others see of it."""

import asyncio
from random import Random

from pequod_server.cluster.member import Member
from pequod_server.homes.rules import HomeRules

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from tests.cluster.waiting import eventually
from tests.simulation.registry import Registry, SimulatedCoordinator


class Slow(SimulatedCoordinator):
    """A coordinator that takes its time to show a server that is ready."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry, Random(1), "c1")
        self.asked, self.may_show = asyncio.Event(), asyncio.Event()

    async def register(self, entry: ServerEntry) -> None:
        """Show the server as it was when this was called."""
        if entry.state is ServerState.READY:
            self.asked.set()
            await self.may_show.wait()
        await super().register(entry)


async def test_others_see_a_map_that_is_taken_in_while_the_server_registers() -> None:
    registry = Registry(ClusterMap("twip", 1))
    coordinator = Slow(registry)
    entry = ServerEntry("c1", "127.0.0.1:7744", frozenset({ServerRole.COMPUTE}))

    async def take_in(_state: ClusterState) -> None:
        pass

    member = Member(coordinator, entry, take_in, rules=HomeRules(entry))
    await member.start()
    showing = asyncio.create_task(member.show(7744))
    await coordinator.asked.wait()
    registry.put_map(ClusterMap("twip", 2))
    await eventually(lambda: member.entry.map_version == 2)
    coordinator.may_show.set()
    await showing
    assert [(one.id, one.map_version, one.state) for one in registry.state.servers] == [("c1", 2, ServerState.READY)]
    await member.stop()
