"""cluster init, add-home, remove-home, placement, drain: the map of a cluster, for operators."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from pequod_installed.names import how_to_install
from typer.core import TyperCommand

from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes, escaped

if TYPE_CHECKING:
    from pequod_server.cluster.etcd_calls import EtcdAccess
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.cluster.map import ClusterMap

_HELP: Final = """Make, show and change the map of a cluster: several servers that go by one map.

\b
PLACE is where the map is, as in the setting `cluster` of the servers:
    static:cluster.toml                               a file; copy it to all servers after a change
    etcd:10.0.0.7:2379,10.0.0.8:2379/twip             etcd, and the name of the cluster

\b
A cluster begins like this:
    pequod cluster init etcd:10.0.0.7:2379/twip
    pequod cluster add-home etcd:10.0.0.7:2379/twip a p s
    pequod serve --cluster etcd:10.0.0.7:2379/twip --listen 10.0.0.1:7744 --cluster-roles home --cluster-group a
    pequod serve --cluster etcd:10.0.0.7:2379/twip --listen 10.0.0.2:7744
    pequod cluster status etcd:10.0.0.7:2379/twip

Without PLACE, the variable PEQUOD_CLUSTER says it; PEQUOD_CLUSTER_CA, _CERTIFICATE and _KEY are files for TLS with
etcd, as for servers. docs/cluster.md tells the rest.
"""
#: How long a change waits for the servers.
_TAKE_IN_S: Final = 10.0
#: How long servers that live may take to show themselves to an etcd that has lost what it had: they try every 2 s.
_SHOWN_S: Final = 10.0
T = TypeVar("T")

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)

_VARIABLE: Final = "PEQUOD_CLUSTER"


class PlaceCommand(TyperCommand):
    """A command whose first argument is PLACE: the variable stands for it, also where other arguments follow."""

    # typer passes its own private context class, so the types can only be loose here.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, with the variable in front if none of them is a place."""
        place = os.environ.get(_VARIABLE)
        if place and not any(one.startswith(("static:", "etcd:")) for one in args):
            args = [place, *args]
        return super().parse_args(ctx, args)


Place = Annotated[
    str, typer.Argument(metavar="PLACE", envvar=_VARIABLE, help="static:FILE or etcd:HOST:PORT,HOST:PORT/NAME.")
]


@app.command(
    "init",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster init static:cluster.toml                    (a file with comments, to be edited)",
        "pequod cluster init etcd:10.0.0.7:2379,10.0.0.8:2379/twip",
        "pequod cluster init etcd:10.0.0.7:2379/twip --from cluster.toml",
        "pequod cluster init etcd:10.0.0.7:2379/twip --at-once     (no server of the cluster has ever run)",
    ),
)
def init(
    place: Place,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A map in TOML to begin with; its servers are left out."),
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Do not wait for servers that live, where etcd has lost their map.")
    ] = False,
) -> None:
    """Make the first map of a cluster. Exit code 3 if there is one already, also if only servers that live have it.

    Where etcd has no map, this takes 10 s: servers that live by a map which etcd has lost show themselves by then.
    """

    async def begin(editor: ClusterEditor) -> None:
        first = None if source is None else _map_of(source)
        await editor.begin(first, 0.0 if at_once else _SHOWN_S)
        print(f"made {editor.place}")

    operated(place, begin)
    if place.startswith("static:"):
        say("edit it, and copy it to all servers; then: pequod serve --cluster static:FILE --listen HOST:PORT")
    else:
        say("next: say which home group owns which keys (`pequod cluster add-home`), and start servers")


def _map_of(path: Path) -> ClusterMap:
    from dataclasses import replace

    from pequod_server.cluster.static import read_file

    return replace(read_file(path).map, version=1)


@app.command(
    "add-home",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster add-home static:cluster.toml a p s             (tables p and s)",
        "pequod cluster add-home etcd:10.0.0.7:2379/twip b --first 'v|' --last 'v|m'",
    ),
)
def home(
    place: Place,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The home group.")],
    tables: Annotated[list[str] | None, typer.Argument(metavar="[TABLE]...", help="Whole tables that it owns.")] = None,
    first: Annotated[str | None, typer.Option(metavar="KEY", help="The first key of a range.")] = None,
    last: Annotated[str | None, typer.Option(metavar="KEY", help="Its end; this key is not in it.")] = None,
) -> None:
    """Have a home group own base keys that no group owns yet. Homes of the group are beside one database.

    A home joins its group by itself, when it is started with `--cluster-roles home --cluster-group GROUP`.
    """
    from pequod.cluster.edits import owned
    from pequod.cluster.map import HomeRange

    homes = [HomeRange(start, end, group) for start, end in _ranges_of(tables, first, last)]
    change(place, lambda known: owned(known, homes))


@app.command(
    "remove-home",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster remove-home etcd:10.0.0.7:2379/twip p s             (tables p and s)",
        "pequod cluster remove-home etcd:10.0.0.7:2379/twip --first 'v|' --last 'v|m'",
    ),
)
def remove_home(
    place: Place,
    tables: Annotated[list[str] | None, typer.Argument(metavar="[TABLE]...", help="Whole tables.")] = None,
    first: Annotated[str | None, typer.Option(metavar="KEY", help="The first key of a range.")] = None,
    last: Annotated[str | None, typer.Option(metavar="KEY", help="Its end; this key is not in it.")] = None,
) -> None:
    """Have base keys be of no home group: all servers refuse them from then on. Their rows stay in the database.

    A group without a home range is asked for nothing: then stop its homes.
    """
    from pequod.cluster.edits import disowned

    ranges = _ranges_of(tables, first, last)
    change(place, lambda known: disowned(known, ranges))


def _ranges_of(tables: list[str] | None, first: str | None, last: str | None) -> list[tuple[bytes, bytes]]:
    """Return the ranges of tables, and the one that options name."""
    from pequod.language.ranges import prefix_end

    prefixes = [f"{table.removesuffix('|')}|".encode() for table in tables or ()]
    ranges = [(prefix, prefix_end(prefix) or b"") for prefix in prefixes]
    if first is not None and last is not None:
        ranges.append((argument_bytes(first), argument_bytes(last)))
    elif first is not None or last is not None:
        fail(ExitCode.USAGE, "a range needs --first and --last")
    if not ranges:
        fail(ExitCode.USAGE, "name tables, or a range by --first and --last")
    return ranges


@app.command(
    "placement",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster placement static:cluster.toml 'top|' --level 0     (one server has the whole table)",
        "pequod cluster placement etcd:10.0.0.7:2379/twip 't|ann|' --read-spread 3",
        "pequod cluster placement etcd:10.0.0.7:2379/twip 'top|' --remove",
    ),
)
def placement(
    place: Place,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Keys that start with this, such as t|.")],
    level: Annotated[
        int, typer.Option(metavar="N", help="How many slots of a key make its group; 0: all keys are one group.")
    ] = 1,
    read_spread: Annotated[
        int, typer.Option(metavar="N", help="Share the reads of a group over this number of servers.")
    ] = 1,
    remove: Annotated[bool, typer.Option("--remove", help="Take the placement out.")] = False,
) -> None:
    """Say how the keys of a table are shared out over the servers that compute.

    It is a hint: any server answers any read. After a change, other servers compute what they do not have yet.
    """
    from pequod.cluster.edits import placed, unplaced
    from pequod.cluster.grouping import Placement

    key = argument_bytes(prefix)
    if remove:
        change(place, lambda known: unplaced(known, key))
    else:
        one = Placement(key, level, read_spread)
        change(place, lambda known: placed(known, one))


@app.command(
    "drain",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster drain etcd:10.0.0.7:2379/twip c2",
        "pequod cluster drain etcd:10.0.0.7:2379/twip c2 --undo",
    ),
)
def drain(
    place: Place,
    server: Annotated[str, typer.Argument(metavar="ID", help="The server, as `cluster status` shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Send it new reads again.")] = False,
) -> None:
    """Send a server no new reads: it answers, and clients go elsewhere. Stop it when its calls have gone down.

    A server that gets SIGTERM does this by itself, for a moment; draining it before gives the others time to compute.
    """
    from pequod.cluster.servers import ServerState

    async def ask(editor: ClusterEditor) -> None:
        await editor.set_state(server, ServerState.READY if undo else ServerState.DRAINING)
        print(f"{server} is {'ready' if undo else 'draining'}")

    operated(place, ask)
    say_copy(place)


def change(place: str, edit: Callable[[ClusterMap], ClusterMap]) -> None:
    """Change the map, wait for the servers, and print what was done."""
    change_by(place, lambda editor: editor.change(edit))


def change_by(place: str, act: Callable[[ClusterEditor], Awaitable[ClusterMap]]) -> None:
    """Have an editor put a map in its place, wait for the servers, and print what was done."""

    async def changed(editor: ClusterEditor) -> tuple[ClusterMap, list[str]]:
        new = await act(editor)
        return new, [] if editor.file else await editor.taken_in(new.version, _TAKE_IN_S)

    new, late = operated(place, changed)
    print(f"version {new.version}")
    for one in new.home_ranges:
        print(f"  {one}: group {one.group}{one.state}")
    for rule in new.placements:
        print(f"  placement {escaped(rule.prefix)}: level {rule.level}, read_spread {rule.read_spread}")
    if late:
        fail(
            ExitCode.REFUSED, f"these servers do not have it after {_TAKE_IN_S:g} s: {', '.join(late)}; see their logs"
        )
    say_copy(place)


def say_copy(place: str) -> None:
    """Say what is left to do where the map is in a file."""
    if place.startswith("static:"):
        say(f"copy {place.removeprefix('static:')} to all servers; each reads it again within a second")


def operated(place: str, act: Callable[[ClusterEditor], Awaitable[T]]) -> T:
    """Run something with the editor of a cluster."""
    import asyncio

    try:
        from pequod_server.cluster.operating import ClusterEditor
    except ImportError as error:
        fail(ExitCode.REFUSED, f"this needs {error.name}: {how_to_install('server')}")

    async def run() -> T:
        editor = ClusterEditor(place, _access())
        try:
            return await act(editor)
        finally:
            await editor.close()

    return asyncio.run(run())


def _access() -> EtcdAccess:
    """Return what to show to etcd, as the variables of servers say."""
    from pequod_server.cluster.membership import etcd_access

    paths: dict[str, Any] = {
        name: Path(path)
        for name in ("cluster_ca", "cluster_certificate", "cluster_key", "cluster_password")
        if (path := os.environ.get(f"PEQUOD_{name.upper()}"))
    }
    return etcd_access(**paths, cluster_user=os.environ.get("PEQUOD_CLUSTER_USER", ""))
