"""cluster map save, restore: the map of a cluster in a file, from its servers and back into etcd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.cluster import Place, PlaceCommand, change_by
from pequod.cli.cluster_asking import state_of_server
from pequod.cli.connection import DEFAULT_TARGET, Target
from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.cluster.map import ClusterMap, ClusterState

_HELP: Final = """Keep the map of a cluster in a file, and put it back where etcd has lost it.

\b
    pequod cluster map save map.toml --target 10.0.0.2:7744      the map that a server goes by
    pequod cluster map restore etcd:10.0.0.7:2379/twip map.toml  the servers go by it at once
"""
_kept: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)
app: Final = typer.Typer()
app.add_typer(_kept, name="map")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The map in TOML.")]


@_kept.command("save", epilog=examples("pequod cluster map save map.toml --target 10.0.0.2:7744"))
def save(path: _File, target: Target = DEFAULT_TARGET) -> None:
    """Write the map that a server goes by to a file, with the servers that it knows.

    etcd need not be there. A file with the map of the same cluster is replaced unless its map is a later one, so that a
    program that saves each hour loses nothing: exit code 3. The caller needs the right `admin` on every key. The
    replacement of a join that is under way is not in the file: it ends when the map is restored.
    """
    import asyncio

    from pequod_server.cluster.static import write_anew

    state = asyncio.run(state_of_server(target, with_joins=True))
    before = _state_in(path).map if path.exists() else state.map
    if before.cluster != state.map.cluster:
        fail(ExitCode.REFUSED, f"{path} has the map of the cluster {before.cluster}; take another file")
    if before.version > state.map.version:
        fail(
            ExitCode.REFUSED,
            f"{path} has version {before.version} of the map, and {target} goes by version {state.map.version}; save "
            "it in another file",
        )
    write_anew(path, state)
    print(f"version {state.map.version}")


@_kept.command(
    "restore",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster map restore etcd:10.0.0.7:2379/twip map.toml",
        "pequod cluster map restore etcd:10.0.0.7:2379/twip older.toml --older     (what was changed since is lost)",
    ),
)
def restore(
    place: Place,
    path: _File,
    older: Annotated[
        bool, typer.Option("--older", help="Also if servers go by a later map: what was changed since is lost.")
    ] = False,
) -> None:
    """Put the map of a file back, as the version after the latest that etcd or a server has, and wait for the servers.

    For an etcd that was restored from an older backup, or lost. With --older, ranges that have moved since go back to
    groups that lack what was written at the new ones.
    """
    kept = _state_in(path).map

    async def put_back(editor: ClusterEditor) -> ClusterMap:
        return await editor.restore(kept, is_older_taken=older)

    change_by(place, put_back)


def _state_in(path: Path) -> ClusterState:
    """Return what a file says; its home groups need no home in it."""
    from pequod.cluster.document import read
    from pequod.errors import ClusterMapError

    try:
        return read(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.REFUSED, f"{path} cannot be read: {error}")
    except ClusterMapError as error:
        fail(ExitCode.REFUSED, f"{path}: {error}")
