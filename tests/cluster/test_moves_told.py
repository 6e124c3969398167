"""`pequod cluster move` that is interrupted, fails, or cannot be: it says where its range is, and what to type."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import typer
from pequod_server import PequodServer
from pequod_server.cluster import copying, moving
from pequod_server.cluster.operating import ClusterEditor

from pequod.cli import cluster_move
from pequod.cluster import edits
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.standing import commands, standing
from pequod.errors import ClusterMapError, CoordinatorUnavailableError
from tests.cluster.test_joins import Cluster
from tests.cluster.test_moves import homes

__all__ = ["homes"]

BOUNDS = b"p00|", b"p00}"
HOME = "home range ['p00|', 'p00}')"
ON, OFF = (f"`pequod cluster move PLACE 'p00|' 'p00}}' {word}`" for word in ("--to b", "--undo"))
ENDS = f"{ON} goes on with the move, and {OFF} ends it"
COPIES = f"{HOME} is at a still: its rows are copied to b, and its writes are taken; {ENDS}"
CLOSED = f"{HOME} is at a still, and about to move to b: until then its writes are refused; {ENDS}"
HAS_COME = (
    f"{HOME} has come to b, and is not opened yet: its writes are refused; {ON} opens it there, and so does {OFF}"
)
DONE = f"{HOME} has come to b, and takes writes there: the move is done"
STAYS = f"{HOME} is at a, takes writes there, and does not move"


class Breaking(ClusterEditor):
    """Breaks a command off right after one of its changes of the map; 0: right before the first one."""

    def __init__(self, place: str, after: int, error: BaseException) -> None:
        super().__init__(place)
        self._left = after
        self._error = error

    async def change(self, edit: Callable[[ClusterMap], ClusterMap]) -> ClusterMap:
        if self._left == 0:
            raise self._error
        changed = await super().change(edit)
        self._left -= 1
        if self._left == 0:
            raise self._error
        return changed


class Kept:
    """An editor of a map that nobody else changes."""

    def __init__(self, known: ClusterMap) -> None:
        self.known = known

    async def latest(self) -> ClusterState:
        return ClusterState(self.known)


@pytest.mark.parametrize(
    ("after", "told"),
    [(0, [STAYS]), (1, [COPIES]), (2, [CLOSED]), (3, [HAS_COME]), (4, [DONE])],
    ids=["not begun", "copying", "closed", "moved", "opened"],
)
async def test_a_move_that_is_interrupted_says_where_its_range_is(
    homes: tuple[Cluster, PequodServer, PequodServer],
    capsys: pytest.CaptureFixture[str],
    after: int,
    told: list[str],
) -> None:
    cluster, *_ = homes
    editor = Breaking(cluster.etcd.setting(cluster.name), after, asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await cluster_move.move_range(editor, BOUNDS, "b")
    lines = [line for line in capsys.readouterr().err.splitlines() if "home range" in line]
    assert [line[: len("pequod: ") + len(told[0])] for line in lines] == [f"pequod: {told[0]}"]
    await editor.close()
    if 1 <= after <= 3:
        # What it says to type ends the move.
        another = ClusterEditor(cluster.etcd.setting(cluster.name))
        await (cluster_move._undo(another, BOUNDS) if after == 3 else cluster_move.move_range(another, BOUNDS, "b"))
        assert (await another.state()).map.home_range_of(BOUNDS[0]) == HomeRange(*BOUNDS, "b")
        await another.close()


async def test_a_move_that_fails_says_where_its_range_is_and_one_that_has_not_begun_says_nothing(
    homes: tuple[Cluster, PequodServer, PequodServer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, *_ = homes
    editor = ClusterEditor(cluster.etcd.setting(cluster.name))
    with pytest.raises(ClusterMapError, match="nobody"):
        await cluster_move.move_range(editor, BOUNDS, "nobody")
    assert capsys.readouterr().err == ""

    async def fail(_: object) -> None:
        raise ClusterMapError("the map", "it breaks off")

    for step, told in (("compare", COPIES), ("come_to_end", STAYS)):
        with monkeypatch.context() as patched, pytest.raises(ClusterMapError, match="it breaks off"):
            patched.setattr(copying.RangeCopy, step, fail)
            await cluster_move.move_range(editor, BOUNDS, "b")
        assert told in capsys.readouterr().err
    await editor.close()


async def test_a_range_that_moves_already_cannot_be_sent_elsewhere_and_only_what_can_be_typed_is_said(
    homes: tuple[Cluster, PequodServer, PequodServer], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, *_ = homes
    editor = ClusterEditor(cluster.etcd.setting(cluster.name))
    for edit in (edits.copying, edits.moving):
        await editor.change(lambda known: edit(known, *BOUNDS, "b"))  # noqa: B023
        with pytest.raises(ClusterMapError) as refused:
            await cluster_move.move_range(editor, BOUNDS, "a")
        assert str(refused.value) == f"{HOME}: it moves to b already: {ENDS}"
        assert capsys.readouterr().err == ""
    await cluster_move._undo(editor, BOUNDS)
    assert capsys.readouterr().out == f"{HOME}: group a\n"
    await editor.close()


async def test_what_does_not_move_is_not_said_to_stay(capsys: pytest.CaptureFixture[str]) -> None:
    known = ClusterMap("twip", 1, home_ranges=(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "a")))
    for present, told in (
        (known, "pequod: no range moves\n"),
        (
            edits.moving(known, b"p|", b"p}", "b"),
            "pequod: no range moves within these bounds; what moves is home range ['p|', 'p}')\n",
        ),
    ):
        with pytest.raises(typer.Exit) as ended:
            await cluster_move._undo(Kept(present), (b"p|m", b"p}"))  # type: ignore[arg-type]
        assert ended.value.exit_code == 1
        assert capsys.readouterr().err == told


async def test_an_undo_that_fails_says_where_the_range_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ClusterMap("twip", 1, home_ranges=(HomeRange(*BOUNDS, "a"),))
    editor = Kept(edits.copying(known, *BOUNDS, "b"))

    def failing(change: Callable[[], None]) -> Callable[..., Awaitable[list[str]]]:
        async def undo(*_: object) -> list[str]:
            change()
            raise moving.LateServersError(2, ["c1"])

        return undo

    def end() -> None:
        editor.known = known

    for change, told in ((lambda: None, COPIES), (end, STAYS)):
        monkeypatch.setattr(moving, "undo", failing(change))
        with pytest.raises(moving.LateServersError):
            await cluster_move._undo(editor, BOUNDS)  # type: ignore[arg-type]
        assert capsys.readouterr().err == f"pequod: {told}\n"


async def test_a_map_that_cannot_be_read_is_no_reason_to_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Away:
        async def latest(self) -> ClusterState:
            raise CoordinatorUnavailableError("etcd", "nobody is there")

    for has_begun in (True, False):
        await cluster_move._say_how_it_stands(Away(), BOUNDS, "b", has_begun=has_begun)  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert told.startswith("pequod: how far the move is, is not known: ")
    assert "nobody is there" in told
    assert told.endswith("; `pequod cluster status` shows it\n")
    assert told.count("\n") == 1


def test_keys_that_no_line_can_hold_are_written_as_bash_reads_them() -> None:
    told = commands(HomeRange(b"p|'\xff", b"p|" + b"x" * 100, "a", copies_to="b"))
    assert f"`pequod cluster move PLACE $'p|\\x27\\xff' 'p|{'x' * 100}' --undo` ends it" in told


def test_a_range_without_a_command_just_stands_where_it_is() -> None:
    assert standing(HomeRange(*BOUNDS, "a")) == STAYS
    assert standing(HomeRange(*BOUNDS, "a"), "b") == f"{STAYS}; the same command begins to move it again"
