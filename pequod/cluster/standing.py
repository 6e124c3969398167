r"""How a home range stands in a map while a move is under way or has been, as people are told.

    copying     at a, copies_to b     it is at a, its rows are copied         --to b goes on, --undo ends it
    closed      at a, moves_to b      it is at a, its writes are refused      --to b goes on, --undo ends it
    moved       at b, moves_to b      it has come, its writes are refused     either opens it
    at rest     at a, or at b         it takes writes there                   what is left depends on the command

>>> print(commands(HomeRange(b"p|", b"p}", "b", moves_to="b")))
`pequod cluster move PLACE 'p|' 'p}' --to b` opens it there, and so does `pequod cluster move PLACE 'p|' 'p}' --undo`
>>> print(standing(HomeRange(b"p|", b"p}", "b"), "b").partition(";")[0])
home range ['p|', 'p}') has come to b, and takes writes there: the move is done
"""

from __future__ import annotations

from pequod.cluster.map import HomeRange
from pequod.escapes import shell_word


def commands(home: HomeRange) -> str:
    """Return the commands that go on with the move of a range, and that end it.

    Requires:
        The range moves, or has come and is not opened.
    """
    going, ending = _commands(home)
    if home.coming_to:
        return f"{going} goes on with the move, and {ending} ends it"
    return f"{going} opens it there, and so does {ending}"


def standing(home: HomeRange, group: str = "") -> str:
    """Return where the map has a range, whether its writes are taken, and what to do.

    Args:
        group: The group to which a command was to move it; empty: a command was to end its move.
    """
    if home.copies_to:
        return (
            f"{home} is at {home.group} still: its rows are copied to {home.copies_to}, and its writes are taken; "
            f"{commands(home)}"
        )
    if home.coming_to:
        return (
            f"{home} is at {home.group} still, and about to move to {home.moves_to}: until then its writes are "
            f"refused; {commands(home)}"
        )
    if home.moves_to:
        return f"{home} has come to {home.group}, and is not opened yet: its writes are refused; {commands(home)}"
    if not group:
        return f"{home} is at {home.group}, takes writes there, and does not move"
    if home.group == group:
        return (
            f"{home} has come to {group}, and takes writes there: the move is done; the last look, whether programs "
            "wrote to the old database beside Pequod, was cut short"
        )
    return f"{home} is at {home.group}, takes writes there, and does not move; the same command begins to move it again"


def _commands(home: HomeRange) -> tuple[str, str]:
    """Return what moves a range on, and what ends its move, as a shell takes them."""
    last = "LAST" if home.last is None else shell_word(home.last)
    command = f"pequod cluster move PLACE {shell_word(home.first)} {last}"
    return f"`{command} --to {home.moves_to or home.copies_to}`", f"`{command} --undo`"
