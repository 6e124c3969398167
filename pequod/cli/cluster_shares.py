"""cluster split, spread, weigh: how home ranges are cut, and how reads are shared out over computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.cluster import Place, PlaceCommand, change, change_by, operated, say_copy
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.cluster.map import ClusterMap

app: Final = typer.Typer()


@app.command(
    "split",
    cls=PlaceCommand,
    epilog=examples("pequod cluster split etcd:10.0.0.7:2379/twip 'p|h' 'p|q'"),
)
def split(
    place: Place,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Where home ranges are cut.")],
) -> None:
    """Cut home ranges at keys. It changes the map alone: all parts stay in their home groups.

    `pequod cluster move` cuts a range by itself.
    """
    from pequod.cluster import edits

    cuts = [argument_bytes(key) for key in keys]
    change(place, lambda known: edits.split(known, cuts))


@app.command(
    "spread",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster spread etcd:10.0.0.7:2379/twip 't|ann|' --over 3",
        "pequod cluster spread etcd:10.0.0.7:2379/twip 't|ann|' --over 1      (as all others)",
    ),
)
def spread(
    place: Place,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group of keys, as `cluster status` shows it.")],
    over: Annotated[int, typer.Option("--over", metavar="N", min=1, help="How many computes it is read at.")],
) -> None:
    """Share the reads of one hot group of keys over several computes. Each of them computes it, and keeps it.

    It is a hint, as a placement is: any server answers any read. Clients in Python and Go go by it at once. The cluster
    must have as many computes.
    """
    from pequod.cluster import edits

    key = argument_bytes(group)

    async def act(editor: ClusterEditor) -> ClusterMap:
        edits.refuse_spread(await editor.latest(), key, over)
        return await editor.change(lambda known: edits.spread(known, key, over))

    change_by(place, act)


@app.command(
    "weigh",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster weigh etcd:10.0.0.7:2379/twip c2 0.5     (half as many groups as one with 1.0)",
        "pequod cluster weigh etcd:10.0.0.7:2379/twip c2 1",
    ),
)
def weigh(
    place: Place,
    server: Annotated[str, typer.Argument(metavar="ID", help="The compute, as `cluster status` shows it.")],
    weight: Annotated[float, typer.Argument(metavar="WEIGHT", help="Its share of the groups beside that of others.")],
) -> None:
    """Give a compute a greater or a smaller share of the groups, until it is started again.

    Groups go from it or to it alone; the others keep theirs. What it begins with is in its setting `cluster_weight`.
    """

    async def ask(editor: ClusterEditor) -> None:
        await editor.set_weight(server, weight)
        print(f"{server} has the weight {weight:g}")

    operated(place, ask)
    say_copy(place)
