"""cluster advise: which ranges should move, which groups of keys be spread, and which computes get another share."""

from __future__ import annotations

import shlex
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.cluster import Place, PlaceCommand, operated
from pequod.cli.cluster_asking import heats_of
from pequod.cli.cluster_move import move_range
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples
from pequod.cli.text import escaped, json_line
from pequod.escapes import shell_word

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.cluster.advice import Advice, Bounds, Move, Spread, Weigh
    from pequod.cluster.map import ClusterState

app: Final = typer.Typer()


class Only(StrEnum):
    """A kind of advice."""

    MOVE = "move"
    SPREAD = "spread"
    WEIGH = "weigh"


@app.command(
    "advise",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster advise etcd:10.0.0.7:2379/twip",
        "pequod cluster advise etcd:10.0.0.7:2379/twip --json",
        "pequod cluster advise etcd:10.0.0.7:2379/twip --apply --max-moves 1 --max-bytes 100MiB",
        "pequod cluster advise etcd:10.0.0.7:2379/twip --only spread --apply --every 30",
    ),
)
def advise(
    place: Place,
    apply: Annotated[bool, typer.Option("--apply", help="Do what is advised, one after the other.")] = False,
    only: Annotated[
        list[Only] | None, typer.Option("--only", help="This kind of advice alone; may be repeated.")
    ] = None,
    max_moves: Annotated[int, typer.Option("--max-moves", metavar="N", min=0, help="Ranges that move.")] = 4,
    max_bytes: Annotated[
        str, typer.Option("--max-bytes", metavar="SIZE", help="Bytes that move, as homes have them in memory.")
    ] = "1GiB",
    max_spread: Annotated[
        int, typer.Option("--max-spread", metavar="N", min=1, help="Computes that one group is read at.")
    ] = 4,
    hot: Annotated[
        float, typer.Option("--hot", metavar="CORES", min=0.001, help="A group that takes more at a compute is hot.")
    ] = 0.25,
    every_s: Annotated[
        float | None, typer.Option("--every", metavar="SECONDS", min=1.0, help="Look again and again.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each piece of advice.")] = False,
) -> None:
    """Say which home ranges to move where, which hot groups of keys to spread, and which computes to weigh anew.

    \b
    It asks each server which keys its processor time goes to, of late: what is 30 seconds ago counts half.
    move      a part of a home range, if a home group has a quarter more to do than the mean; if all have little to do,
              a quarter more bytes in memory
    spread    a group of keys whose reads take more of a core at one compute than --hot
    weigh     a compute that has 30 % more or less to do than the mean, where no group is hot

    Nothing is done without --apply. With it, advice is carried out one after the other: each move ends before the next
    one begins, and the first that fails ends the command. With --every, a look that fails behind the first one is said,
    and the next one tries again. Exit code 1: there is nothing to do; 4: no home of a group answers, so nobody knows.
    """  # noqa: D301 - typer's mark of lines that stay as they are
    from pequod.cluster.advice import Bounds
    from pequod.errors import PequodError

    bounds = Bounds(max_moves, _size_of(max_bytes), max_spread, hot)
    kinds = set(only or Only)

    def look() -> Advice:
        advice = _advice(place, bounds, kinds)
        if advice.silence and every_s is None:
            fail(ExitCode.UNREACHABLE, advice.silence)
        _print_json(place, advice) if json else _print(place, advice)
        # The log of a service has each look when it was made, and what is advised before it is done.
        sys.stdout.flush()
        if apply:
            _carry_out(place, advice)
            sys.stdout.flush()
        return advice

    # What fails at first is told as that of any command.
    advice = look()
    while every_s is not None:
        time.sleep(every_s)
        try:
            look()
        except PequodError as error:
            say(f"{error}; it looks again in {every_s:g} s")
    if advice.is_empty:
        raise typer.Exit(ExitCode.ABSENT)


def _size_of(text: str) -> int:
    from pequod_server.setting_kinds import size_of
    from pydantic_core import PydanticCustomError

    try:
        size = size_of(text)
    except PydanticCustomError as error:
        fail(ExitCode.USAGE, f"--max-bytes {error.message()}")
    assert isinstance(size, int), "a size that is text is read"
    return size


def _advice(place: str, bounds: Bounds, kinds: set[Only]) -> Advice:
    from pequod.cluster.advice import Asked, advise
    from pequod.cluster.silent import silence

    async def look(editor: ClusterEditor) -> tuple[ClusterState, list[Asked]]:
        state = await editor.latest()
        heats = await heats_of(state.servers)
        return state, [Asked(server, heat) for server, heat in zip(state.servers, heats, strict=True)]

    state, asked = operated(place, look)
    advice = advise(state.map, asked, bounds)
    advice.silence = silence(state, [one.server.id for one in asked if one.heat is not None])
    advice.moves = advice.moves if Only.MOVE in kinds else []
    advice.spreads = advice.spreads if Only.SPREAD in kinds else []
    advice.weights = advice.weights if Only.WEIGH in kinds else []
    if place.startswith("static:") and advice.moves:
        advice.notes.append("a map in a file cannot have a range moved while it is written: see docs/cluster.md")
    return advice


def _command(place: str, name: str, *words: str | bytes) -> str:
    """Return a command as a shell takes it; keys are bytes."""
    quoted = (shell_word(word) if isinstance(word, bytes) else shlex.quote(word) for word in words)
    return " ".join(["pequod cluster", name, shlex.quote(place), *quoted])


def _move_command(place: str, one: Move) -> str:
    return _command(place, "move", one.first, one.last, "--to", one.to)


def _spread_command(place: str, one: Spread) -> str:
    return _command(place, "spread", one.group, "--over", str(one.over))


def _weigh_command(place: str, one: Weigh) -> str:
    return _command(place, "weigh", one.server, f"{one.weight:g}")


def _print(place: str, advice: Advice) -> None:
    for move in advice.moves:
        cut = f"; it cuts {move.home} at {', '.join(map(escaped, move.splits))}" if move.splits else ""
        print(_move_command(place, move))
        print(f"    {move.reason}: {move.keys:,} keys, {move.bytes:,} bytes{cut}")
    for spread in advice.spreads:
        print(_spread_command(place, spread))
        print(f"    {spread.reason}")
    for weigh in advice.weights:
        print(_weigh_command(place, weigh))
        print(f"    {weigh.reason}; its weight is {weigh.before:g}")
    if advice.is_empty and not advice.silence:
        print("nothing to do")
    for note in advice.told:
        say(note)
    if advice.balance:
        print()
        columns = ("home group", "cores", "after", "bytes", "after")
        rows = [
            (one.group, f"{one.cores:.2f}", f"{one.cores_after:.2f}", f"{one.bytes:,}", f"{one.bytes_after:,}")
            for one in advice.balance
        ]
        print_table(columns, rows)


def _print_json(place: str, advice: Advice) -> None:
    for move in advice.moves:
        print(
            json_line(
                {
                    "advice": "move",
                    "first": escaped(move.first),
                    "last": escaped(move.last),
                    "from": move.home.group,
                    "to": move.to,
                    "splits": [escaped(key) for key in move.splits],
                    "keys": move.keys,
                    "bytes": move.bytes,
                    "cores": round(move.cores, 4),
                    "reason": move.reason,
                    "command": _move_command(place, move),
                }
            )
        )
    for spread in advice.spreads:
        facts = {"group": escaped(spread.group), "over": spread.over, "before": spread.before}
        facts |= {"cores": round(spread.cores, 4), "reason": spread.reason, "command": _spread_command(place, spread)}
        print(json_line({"advice": "spread", **facts}))
    for weigh in advice.weights:
        facts = {"server": weigh.server, "weight": weigh.weight, "before": weigh.before, "reason": weigh.reason}
        print(json_line({"advice": "weigh", **facts, "command": _weigh_command(place, weigh)}))
    for one in advice.balance:
        cores = {"cores": round(one.cores, 4), "cores_after": round(one.cores_after, 4)}
        print(json_line({"home_group": one.group, **cores, "bytes": one.bytes, "bytes_after": one.bytes_after}))
    for note in advice.told:
        print(json_line({"note": note}))


def _carry_out(place: str, advice: Advice) -> None:
    from pequod.cluster import edits

    if advice.moves and place.startswith("static:"):
        fail(ExitCode.REFUSED, "servers do not say in a file which map they go by; a move needs a map in etcd")

    async def spread(editor: ClusterEditor) -> None:
        for one in advice.spreads:
            await editor.change(lambda known, one=one: edits.spread(known, one.group, one.over))  # type: ignore[misc]
            print(f"{escaped(one.group)} is read at {one.over} computes")

    async def weigh(editor: ClusterEditor) -> None:
        for one in advice.weights:
            await editor.set_weight(one.server, one.weight)
            print(f"{one.server} has the weight {one.weight:g}")

    if advice.spreads:
        operated(place, spread)
    if advice.weights:
        operated(place, weigh)
    for one in advice.moves:
        operated(place, lambda editor, one=one: move_range(editor, (one.first, one.last), one.to))  # type: ignore[misc]
