"""cluster status: who is there, what each server holds, and how far behind it is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.cluster import operated
from pequod.cli.cluster_asking import ANSWER_S, state_of_server
from pequod.cli.connection import DEFAULT_TARGET, Json, Target, connection_settings
from pequod.cli.exits import ExitCode, say
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples
from pequod.cli.text import escaped, json_line

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.answers.heat import GroupHeat
    from pequod.calls import ServerStatistics
    from pequod.cluster.map import ClusterState
    from pequod.cluster.servers import ServerEntry

app: Final = typer.Typer()

_COLUMNS: Final = ("id", "roles", "group", "zone", "address", "state", "map", "keys", "bytes", "computed", "behind")
_HEAT_COLUMNS: Final = ("id", "hot group", "cores", "reads/s", "writes/s", "computes")
#: Hot groups of each server that are shown, and what a group takes of a core at the least.
_HOT_SHOWN: Final = 3
_HOT_CORES: Final = 0.01
_FOLLOWER_COLUMNS: Final = ("home", "compute", "subscriptions", "events behind", "changes", "bytes", "reloads")


@dataclass(frozen=True, slots=True)
class ServerLine:
    """A server in the table."""

    server: ServerEntry
    #: None if it does not answer; then ``error`` says why.
    statistics: ServerStatistics | None
    error: str = ""

    @property
    def behind_s(self) -> float | None:
        """How old what it has of its databases may be, by the oldest; None if it has none, or does not know."""
        databases = () if self.statistics is None else self.statistics.databases
        ages = [one.age_s for one in databases if one.age_s is not None]
        return max(ages) if ages and len(ages) == len(databases) else None

    @property
    def keys(self) -> int | None:
        """The base keys that it holds."""
        found = self.statistics
        return None if found is None else found.loose_keys + sum(table.keys for table in found.tables.values())

    @property
    def computed(self) -> int | None:
        """The computed rows that it holds."""
        return None if self.statistics is None else sum(join.rows for join in self.statistics.joins.values())

    @property
    def used_bytes(self) -> int | None:
        """The memory of its engine."""
        return None if self.statistics is None else self.statistics.memory.total_bytes


@app.command(
    "status",
    epilog=examples(
        "pequod cluster status static:cluster.toml",
        "pequod cluster status                     (asks the server at --target)",
        "pequod cluster status etcd:10.0.0.7:2379/twip --watch 2",
        "pequod cluster status --json",
    ),
)
def status(
    place: Annotated[
        str | None, typer.Argument(metavar="[PLACE]", envvar="PEQUOD_CLUSTER", help="Where the map is; else a server.")
    ] = None,
    watch_s: Annotated[
        float | None, typer.Option("--watch", min=0.1, metavar="SECONDS", help="Show it again and again.")
    ] = None,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Show who is there, what each server holds, and how far behind its databases each is.

    \b
    state     joining, ready, draining; "away": it is in the map and does not answer
    map       the version of the map that it goes by; with a file, servers do not say it
    keys      base keys in its memory; computed: rows that its joins have materialised
    behind    the age of what it has of its databases
    Then the groups of keys that servers work for most, of late, from a hundredth of a core on, and at how many computes
    each is read.
    Then each compute that follows a home: the ranges whose changes the home tells it (subscriptions), the events that
    it was not told yet, and what it was told.
    Exit code 1 if a server does not answer, if no home of a group is there, or if one goes by an older map; or by a
    later one than is at PLACE: then it says how to put that back.
    """  # noqa: D301 - typer's mark of lines that stay as they are
    from pequod.cluster.silent import silence

    while True:
        state, lines = _look(place, target)
        lost = _lost(place or target, state)
        if json:
            _print_json(state, lines)
        else:
            if watch_s is not None:
                print("\x1b[2J\x1b[H", end="")
            _print(state, lines)
        silent = silence(state, [one.server.id for one in lines if not one.error])
        for trouble in filter(None, (lost, silent)):
            say(trouble)
        if watch_s is None:
            break
        time.sleep(watch_s)
    late = [one.server.id for one in lines if 0 < one.server.map_version < state.map.version]
    if lost or late or silent or any(one.error for one in lines):
        raise typer.Exit(ExitCode.ABSENT)


def _look(place: str | None, target: str) -> tuple[ClusterState, list[ServerLine]]:
    import asyncio

    async def of_editor(editor: ClusterEditor) -> ClusterState:
        return await editor.state()

    async def look(state: ClusterState) -> list[ServerLine]:
        return list(await asyncio.gather(*map(_asked, state.servers)))

    state = asyncio.run(state_of_server(target)) if place is None else operated(place, of_editor)
    return state, asyncio.run(look(state))


async def _asked(server: ServerEntry) -> ServerLine:
    from pequod.client import AsyncClient
    from pequod.errors import PequodError

    settings = {**connection_settings(), "timeout_s": ANSWER_S}
    try:
        async with AsyncClient(server.address, retries=0, **settings) as client:  # type: ignore[arg-type]
            return ServerLine(server, await client.statistics())
    except PequodError as error:
        return ServerLine(server, None, str(error))


def _lost(place: str, state: ClusterState) -> str:
    """Return that servers go by a later map, and what to do; empty if they do not."""
    from pequod.cluster.lost import check_not_lost
    from pequod.errors import ClusterMapError

    try:
        check_not_lost(place, state.map.version, state.servers)
    except ClusterMapError as error:
        return str(error)
    return ""


def _print(state: ClusterState, lines: list[ServerLine]) -> None:
    known = state.map
    print(f"cluster {known.cluster}, map version {known.version}, {len(state.servers)} servers")
    for home in known.home_ranges:
        print(f"{home}: group {home.group}{home.state}")
    print_table(_COLUMNS, map(_cells, lines))
    heat = [cells for one in lines for cells in _heat_cells(state, one)]
    if heat:
        print()
        print_table(_HEAT_COLUMNS, heat)
    followers = [cells for one in lines for cells in _follower_cells(one)]
    if followers:
        print()
        print_table(_FOLLOWER_COLUMNS, followers)
    for one in lines:
        if one.error:
            print(f"{one.server.id}: {one.error}")


def _cells(one: ServerLine) -> tuple[str, ...]:
    server = one.server
    return (
        server.id,
        "+".join(sorted(server.roles, reverse=True)),
        server.group,
        server.zone,
        server.address,
        "away" if one.error else server.state,
        str(server.map_version or ""),
        _figure(one.keys),
        _figure(one.used_bytes),
        _figure(one.computed),
        "" if one.behind_s is None else f"{one.behind_s:.1f} s",
    )


def _hottest(one: ServerLine) -> list[GroupHeat]:
    found = () if one.statistics is None else one.statistics.heat.groups
    return [group for group in found[:_HOT_SHOWN] if group.cores >= _HOT_CORES]


def _heat_cells(state: ClusterState, one: ServerLine) -> list[tuple[str, ...]]:
    """Return a line for each hot group of a server."""
    return [
        (
            one.server.id,
            escaped(hot.group),
            f"{hot.cores:.2f}",
            f"{hot.reads:,.0f}",
            f"{hot.writes:,.0f}",
            str(state.map.read_spread_of(hot.group)),
        )
        for hot in _hottest(one)
    ]


def _follower_cells(one: ServerLine) -> list[tuple[str, ...]]:
    """Return a line for each compute that follows a home."""
    found = one.statistics
    if found is None:
        return []
    return [
        (
            one.server.id,
            peer.id or peer.address,
            _figure(peer.subscriptions),
            f"{peer.lag_events:,}",
            f"{peer.changes:,}",
            f"{peer.bytes:,}",
            f"{peer.reloads:,}",
        )
        for peer in found.peers
    ]


def _figure(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _print_json(state: ClusterState, lines: list[ServerLine]) -> None:
    for one in lines:
        server = one.server
        print(
            json_line(
                {
                    "id": server.id,
                    "address": server.address,
                    "roles": sorted(server.roles),
                    "group": server.group,
                    "zone": server.zone,
                    "weight": server.weight,
                    "state": server.state,
                    "map_version": server.map_version,
                    "cluster_map_version": state.map.version,
                    "keys": one.keys,
                    "used_bytes": one.used_bytes,
                    "computed": one.computed,
                    "behind_s": one.behind_s,
                    "cores": None if one.statistics is None else round(one.statistics.heat.cores, 4),
                    "hottest": [
                        {
                            "group": escaped(hot.group),
                            "cores": round(hot.cores, 4),
                            "reads": round(hot.reads, 1),
                            "writes": round(hot.writes, 1),
                        }
                        for hot in _hottest(one)
                    ],
                    "followers": [
                        {
                            "id": peer.id,
                            "subscriptions": peer.subscriptions,
                            "lag_events": peer.lag_events,
                            "changes": peer.changes,
                            "reloads": peer.reloads,
                        }
                        for peer in (one.statistics.peers if one.statistics else ())
                    ],
                    "subscription_bounds": one.statistics.subscription_bounds if one.statistics else None,
                    "error": one.error,
                }
            )
        )
