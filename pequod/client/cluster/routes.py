"""Which node a key goes to, in one state of a cluster.

key -> group -> nodes in rendezvous order -> the first that is not away
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import choice
from typing import Final, Protocol

from pequod.client.cluster.node import Node
from pequod.client.columns import Columns, written_keys
from pequod.cluster.map import ClusterState
from pequod.cluster.owners import GROUPS_MAX, Owners, Rankings, Servers

Nodes = tuple[Node, ...]


class Routed(Protocol):
    """A cluster, for what sends calls to its nodes."""

    target: str
    timeout_s: float
    retries: int
    #: None until the map is known.
    routes: Routes | None


class Routes:
    """Finds nodes in one state of a cluster.

    Args:
        nodes: The nodes of the state's servers, by their ids.
        rankings: See `Owners`.

    Invariants:
        1. The node of a group is right for the nodes that are away now: `forget` is called when they change.
    """

    def __init__(self, state: ClusterState, nodes: Mapping[str, Node], rankings: Rankings | None = None) -> None:
        self.state: Final = state
        self.owners: Final = Owners(state, rankings)
        self.nodes: Final = nodes
        self._group_of = self.owners.group_of
        self._is_plain = not state.map.placements
        self._reads: dict[bytes, Node | Nodes | None] = {}
        #: The owners of groups that are in one home range; they do not depend on who is away.
        self._writes: dict[bytes, Node | None] = {}

    def forget(self) -> None:
        """Find nodes anew: it has changed who is away."""
        self._reads.clear()

    def reader(self, key: bytes) -> Node | None:
        """Return the node for a read that begins at ``key``; None if there is no server.

        Cost:
            0.4 us if its group was asked for before.
        """
        # As `Grouping.group_of` for nearly all keys of a map without placements.
        group = key[: key.find(b"|", key.find(b"|") + 1) + 1] if self._is_plain else b""
        try:
            node = self._reads[group]
        except KeyError:
            group = self._group_of(key)
            node = self._reads[group] if group in self._reads else self._found(group)
        return node if node.__class__ is not tuple else choice(node)  # type: ignore[return-value]  # noqa: S311 - no secret

    def readers(self, key: bytes) -> Nodes:
        """Return nodes for a read that begins at ``key``: the owner of its group, then spares.

        All are returned if none of the first ones answers.
        """
        nodes = self._all(self.owners.readers(key))
        return nodes if any(not one.is_away for one in nodes) else self._all(self.owners.all_readers(key))

    def writers(self, key: bytes) -> Nodes:
        """Return all nodes for a write of ``key``: its homes, then the computes, which hand it on."""
        homes = self.owners.writers(key)
        return self._all((*homes, *(server for server in self.owners.readers(key) if server not in homes)))

    def writer(self, key: bytes) -> Node | None:
        """Return the node for a write of ``key``; None if there is no server.

        It is the owner, unless that is away. While writes are under way at an owner that is away, or at a spare in the
        place of an owner that is back, the next ones follow them, so that the writes of a key keep their order.
        """
        node = self.writing_owner(key)
        if node is None or not (node.is_away or node.lent):
            return node
        for one in self.writers(key):
            if not one.lent and (one.writes or not one.is_away):
                return one
        return node

    def writing_owner(self, key: bytes) -> Node | None:
        """Return the node that a write of ``key`` goes to if all are there.

        Cost:
            0.5 us if its group was asked for before, and is in one home range.
        """
        group = key[: key.find(b"|", key.find(b"|") + 1) + 1] if self._is_plain else b""
        if group in self._writes:
            return self._writes[group]
        group = self._group_of(key)
        has_one_home = self._has_one_home(group, key)
        if has_one_home and group in self._writes:
            return self._writes[group]
        servers = self.owners.writers(key) or self.owners.readers(key)
        node = self.nodes[servers[0].id] if servers else None
        if has_one_home:
            if len(self._writes) >= GROUPS_MAX:
                self._writes.clear()
            self._writes[group] = node
        return node

    def lenders(self, columns: Columns, node: Node) -> list[Node]:
        """Return the owners in whose place a node gets writes."""
        if not any(one.is_away or one.lent for one in self.nodes.values()):
            return []
        found = {self.writing_owner(key) for key in written_keys(columns)}
        return [one for one in found if one is not None and one is not node]

    def _has_one_home(self, group: bytes, key: bytes) -> bool:
        """Return whether one home group owns all keys that start with a group, and the key is one of them."""
        if not self.state.map.home_ranges:
            return True
        if not key.startswith(group):
            return False
        home = self.state.map.home_range_of(group)
        return home is not None and (home.last is None or group.removesuffix(b"|") + b"}" <= home.last)

    def home_group_of(self, key: bytes) -> str:
        """Return the home group that owns ``key``, an empty text if the map does not say it."""
        home = self.state.map.home_range_of(key)
        return "" if home is None else home.group

    def _found(self, group: bytes) -> Node | Nodes | None:
        nodes = self.readers(group)
        spread = self.owners.read_spread_of(group)
        there = [node for node in nodes if not node.is_away]
        found: Node | Nodes | None
        if spread > 1 and len(there) > 1:
            found = tuple(there[:spread])
        elif nodes:
            found = there[0] if there else latest_of(nodes)
        else:
            found = None
        if len(self._reads) >= GROUPS_MAX:
            self._reads.clear()
        self._reads[group] = found
        return found

    def has_better(self, node: Node) -> bool:
        """Return whether another server of its role answers, so that nothing needs to wait for ``node``."""
        roles = node.entry.roles
        return any(not one.is_away and one is not node and roles & one.entry.roles for one in self.nodes.values())

    def _all(self, servers: Servers) -> Nodes:
        return tuple(self.nodes[server.id] for server in servers)


def latest_of(nodes: Iterable[Node]) -> Node:
    """Return the node that answered last: where all are away, it is the likeliest to answer.

    Requires:
        There is one.
    """
    return max(nodes, key=lambda node: node.answered_s)
