"""Clusters of many servers by accounts: one real server among played ones, and measured costs of single operations.

    changes     a change of the map, a rolling restart      what one server and one client take
    posts       Twip's graph, and the real owners           computes that are told a post, and what that takes
    memory      what a server knows of the others, and what a client keeps

What is left out: the wire, loads and reads, and waiting. A cluster that has a core for each server is bounded by what
its busiest servers take.
"""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from pequod_bench.micro.cluster import CLUSTER
from pequod_bench.micro.frame import MicroScale, measure
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import Graph as GraphChoice
from pequod_bench.settings import Numbers, Seed, Users
from pequod_bench.workloads.graph import Graph, make_graph
from pequod_bench.workloads.stream import post_weights
from rich.console import Console
from typer import Option

from lab.fleet.changes import Spent, change_map, restart_all, spent_by, state_of_servers
from pequod.cluster.map import ClusterState
from pequod.cluster.messages import message_of_state, state_of
from pequod.cluster.owners import Owners, Rankings

#: Clients that follow each server.
CLIENTS: Final = 10
#: Servers that watch etcd where the others follow them.
WATCHERS: Final = 3
#: Groups that the client has whose memory is measured.
_GROUPS: Final = 10_000
_SAMPLES: Final = MicroScale(sample_count=40, part=0.2)
#: The operations whose costs are measured first.
_ROWS: Final = ("feed: tell", "feed: hear", "feed: apply")


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Which clusters to play, and whose posts."""

    servers: Annotated[Numbers, Option(help="Servers of each cluster, of which one is real.")] = (48, 200, 1_000)
    graph: GraphChoice = "synthetic"
    users: Users = 2_000
    seed: Seed = 1


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What single operations take on this machine, in µs of CPU."""

    tell: float
    hear: float
    apply: float


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What a cluster of one size takes."""

    servers: int
    map_change: Spent
    restart: Spent
    #: Computes that are told a post, on average.
    told: float
    home_us_per_post: float
    computes_us_per_post: float
    server_kib: float
    client_kib: float

    def server_ms(self, spent: Spent) -> float:
        """Return what changes take a server, with its clients."""
        return (spent.server_cpu_s + (CLIENTS - 1) * spent.follower_cpu_s) * 1e3

    @property
    def map_ms(self) -> float:
        return self.server_ms(self.map_change)

    @property
    def map_change_messages(self) -> int:
        """Changes that etcd tells all servers together."""
        return self.map_change.heard * self.servers

    @property
    def watchers_messages(self) -> int:
        """Changes that etcd tells where a few servers watch it, and the others follow these."""
        return self.map_change.heard * min(WATCHERS, self.servers)

    @property
    def behind_ms(self) -> float:
        """What a change of the map takes a server that follows another one, with its own clients."""
        return (self.map_change.behind_cpu_s + CLIENTS * self.map_change.follower_cpu_s) * 1e3

    @property
    def client_ms(self) -> float:
        return self.map_change.client_cpu_s * 1e3

    @property
    def restart_share(self) -> float:
        """The part of a core that a rolling restart takes each server while it lasts."""
        return self.server_ms(self.restart) / 1e3 / self.restart.seconds


@dataclass(frozen=True, slots=True)
class FleetReport(Printed):
    """Clusters of several sizes."""

    graph: str
    users: int
    clients: int
    costs: UnitCosts
    runs: tuple[FleetRun, ...]

    def print_table(self, console: Console) -> None:
        print_rows(
            console,
            self.runs,
            {
                "servers": "{0.servers:,}",
                "told by etcd": "{0.map_change.heard:,}",
                "etcd, all": "{0.map_change_messages:,}",
                "messages to a client": "{0.map_change.told:,}",
                "bytes": "{0.map_change.told_bytes:,}",
                "a server, ms": "{0.map_ms:,.0f}",
                "a client, ms": "{0.client_ms:,.0f}",
                f"etcd, {WATCHERS} watch": "{0.watchers_messages:,}",
                "one behind, ms": "{0.behind_ms:,.0f}",
            },
            title="A change of the map",
        )
        print_rows(
            console,
            self.runs,
            {
                "servers": "{0.servers:,}",
                "told by etcd": "{0.restart.heard:,}",
                "messages to a client": "{0.restart.told:,}",
                "bytes": "{0.restart.told_bytes:,}",
                "takes, s": "{0.restart.seconds:,.0f}",
                "a server, of a core": "{0.restart_share:.1%}",
            },
            title="\nA rolling restart",
        )
        print_rows(
            console,
            self.runs,
            {
                "servers": "{0.servers:,}",
                "computes told": "{0.told:,.1f}",
                "home, µs": "{0.home_us_per_post:,.0f}",
                "all computes, µs": "{0.computes_us_per_post:,.0f}",
                "a server, KiB": "{0.server_kib:,.0f}",
                "a client, KiB": "{0.client_kib:,.0f}",
            },
            title=f"\nA post, of {self.users:,} users ({self.graph}), and memory for the cluster",
        )
        costs = self.costs
        console.print(
            f"\nMeasured: a change told in {costs.tell:.2f} µs, heard in {costs.hear:.2f}, applied in "
            f"{costs.apply:.2f}; {self.clients} clients follow each server"
        )


def run(settings: FleetSettings, bars: ProgressBars) -> FleetReport:
    """Measure what changes of the map, restarts and posts take one server of a large cluster; the others are played.

    One server and its client are real. What single operations take is measured first.
    """
    # The homes that are measured have no database, of which they warn.
    logging.getLogger("pequod.peer").setLevel(logging.ERROR)
    with bars.working("measuring"):
        found = {row.name: row.min_us for row in measure([row for row in CLUSTER if row.name in _ROWS], _SAMPLES)}
    costs = UnitCosts(*(found[name] for name in _ROWS))
    graph = make_graph(settings.graph, settings.users, np.random.default_rng(settings.seed))
    runs = []
    with bars.bar("playing", len(settings.servers)) as advance:
        for count in settings.servers:
            runs.append(_run_size(count, graph, costs, settings.seed))
            advance(1)
    return FleetReport(graph.name, graph.user_count, CLIENTS, costs, tuple(runs))


def _run_size(count: int, graph: Graph, costs: UnitCosts, seed: int) -> FleetRun:
    state = state_of_servers(count)
    told, copies = _told(state, graph, seed)
    return FleetRun(
        servers=count,
        map_change=spent_by(count, change_map),
        restart=spent_by(count, restart_all),
        told=told,
        home_us_per_post=told * costs.tell,
        computes_us_per_post=told * costs.hear + copies * costs.apply,
        server_kib=_kib(lambda: _known(state)),
        client_kib=_kib(lambda: _followed(state)),
    )


def _told(state: ClusterState, graph: Graph, seed: int) -> tuple[float, float]:
    """Return the computes that a post is told to, and the timelines that it comes into, on average over posts."""
    owners, numbers = Owners(state, Rankings()), {server.id: at for at, server in enumerate(state.servers)}
    owner_of = np.array([numbers[owners.readers(b"t|%08d|" % user)[0].id] for user in range(graph.user_count)])
    pairs = np.unique(graph.posters * len(numbers) + owner_of[graph.users])
    told = np.bincount(pairs // len(numbers), minlength=graph.user_count)
    followers = graph.follower_counts()
    weights = post_weights(followers, np.random.default_rng(seed))
    return float(np.average(told, weights=weights)), float(np.average(followers, weights=weights))


def _known(state: ClusterState) -> object:
    return state_of(message_of_state(state))


def _followed(state: ClusterState) -> object:
    known = state_of(message_of_state(state))
    owners = Owners(known, Rankings())
    for number in range(_GROUPS):
        owners.readers(b"t|%08d|" % number)
    return owners


def _kib(make: Callable[[], object]) -> float:
    """Return the memory of what is made."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = make()
        after, _ = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
    return (after - before) / 1024
