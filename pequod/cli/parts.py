"""The commands by their names, each made when it is looked up: `pequod get` does without the modules of the others.

`CommandTable({"put": make, "get": make, "join": make_group})` lists three commands, and has made none. To look "get" up
calls `make`, which imports the module of "put" and "get".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer

# typer's classes of commands are private, so their types can only be loose here.
Commands = Mapping[str, Any]
Maker = Callable[[], Commands]


class CommandTable(Commands):
    """What a group looks its commands up in.

    To make all commands takes 45 ms, and their modules 25 ms: as long as a whole command needs for its work.

    Args:
        makers: What makes each command, in the order of the help. One may make several.
    """

    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self._makers: Final = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            made = self._makers[name]()
            assert made.keys() <= self._makers.keys(), "a command without a maker is found by chance only"
            self._made.update(made)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def commands_of(app: typer.Typer, name: str | None = None) -> Commands:
    """Return the commands of a Typer; with a name, one command, the group of this name."""
    group = typer.Typer(rich_markup_mode=None)
    group.add_typer(app, name=name)
    return typer.main.get_group(group).commands


def in_module(module: str) -> Maker:
    """Return what makes the commands of a module of `pequod.cli`."""
    return lambda: commands_of(_app(module))


def in_group(name: str, module: str, *parts: str) -> Maker:
    """Return what makes the group of a module of `pequod.cli`, with the commands of other modules in it."""

    def make() -> Commands:
        made = commands_of(_app(module), name)
        for part in parts:
            for command in commands_of(_app(part)).values():
                made[name].add_command(command)
        return made

    return make


def _app(module: str) -> typer.Typer:
    app = import_module(f"pequod.cli.{module}").app
    assert isinstance(app, typer.Typer)
    return app
