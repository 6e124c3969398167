"""cluster map save, restore: the map of a cluster in a file, from its servers and back into etcd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.cluster import Place, PlaceCommand, change_by, operated
from pequod.cli.cluster_restoring import Restoration, look
from pequod.cli.cluster_saving import save_on, saved, state_in
from pequod.cli.connection import DEFAULT_TARGET, Target
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.cluster.map import ClusterMap

_HELP: Final = """Keep the map of a cluster in a file, and put it back where etcd has lost it.

\b
    pequod cluster map save map.toml --target 10.0.0.2:7744      the map that a server goes by
    pequod cluster map restore etcd:10.0.0.7:2379/twip map.toml  the servers go by it at once
"""
_kept: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)
app: Final = typer.Typer()
app.add_typer(_kept, name="map")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The map in TOML.")]


@_kept.command(
    "save",
    epilog=examples(
        "pequod cluster map save map.toml --target 10.0.0.2:7744",
        "pequod cluster map save twip.toml --every 3600 --keep 48 --target pequod+cluster://10.0.0.2:7744,10.0.0.3:7744",
    ),
)
def save(
    path: _File,
    every_s: Annotated[
        float | None,
        typer.Option("--every", min=0.1, metavar="SECONDS", help="Save it again and again, until SIGTERM."),
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", min=1, metavar="N", help="With --every: keep the files of the newest N versions.")
    ] = 24,
    target: Target = DEFAULT_TARGET,
) -> None:
    """Write the map that a server goes by to a file, with the servers that it knows.

    etcd need not be there. A file with the map of the same cluster is replaced at once and as a whole, unless its map
    is a later one, so that a program that saves each hour loses nothing: exit code 3. The caller needs the right
    `admin` on every key. The replacement of a join that is under way is not in the file: it ends when the map is
    restored.

    With --every, each version has a file beside it, too: twip.5.toml beside twip.toml. What fails is said, and tried
    again. Of several servers in --target, the first one that answers is asked.
    """
    import asyncio

    if every_s is None:
        print(f"version {asyncio.run(saved(path, target))}")
    else:
        asyncio.run(save_on(path, target, every_s, keep))


@_kept.command(
    "restore",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster map restore etcd:10.0.0.7:2379/twip map.toml",
        "pequod cluster map restore etcd:10.0.0.7:2379/twip map.toml --dry-run     (changes nothing)",
        "pequod cluster map restore etcd:10.0.0.7:2379/twip older.toml --older     (what was changed since is lost)",
    ),
)
def restore(
    place: Place,
    path: _File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would change, and by which map servers go.")
    ] = False,
    older: Annotated[
        bool, typer.Option("--older", help="Also if servers go by a later map: what was changed since is lost.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also if homes do not answer: they may go by a later map.")
    ] = False,
) -> None:
    """Put the map of a file back, as the version after the latest that etcd or a server has, and wait for the servers.

    For an etcd that was restored from an older backup, or lost. The servers of the file and those that etcd knows are
    asked for the map that they go by. Exit code 3, also with --dry-run, if the file has the map of another cluster, if
    a server goes by a later map than the file's, or if a home does not answer. With --older, ranges that have moved
    since go back to groups that lack what was written at the new ones.
    """
    kept = state_in(path)

    async def put_back(editor: ClusterEditor) -> ClusterMap:
        found = await look(editor, kept)
        if refusal := found.refusal(is_older_taken=older, is_anyway=anyway):
            fail(ExitCode.REFUSED, refusal)
        await editor.restore(found.changed)
        return found.changed

    async def show(editor: ClusterEditor) -> Restoration:
        return await look(editor, kept)

    if not dry_run:
        change_by(place, put_back)
        return
    found = operated(place, show)
    print("\n".join(found.lines()))
    if refusal := found.refusal(is_older_taken=older, is_anyway=anyway):
        fail(ExitCode.REFUSED, refusal)
    say("nothing is changed: leave out --dry-run to put it there")
