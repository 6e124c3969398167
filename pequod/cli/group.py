"""A group of commands, and the one place where errors become exit codes."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final

import typer
from pequod_installed.names import how_to_install
from typer.core import TyperGroup

from pequod.cli.connection import present_timeout_s
from pequod.cli.exits import ExitCode, fail

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class CommandGroup(TyperGroup):
    """The root group: an error of Pequod's becomes a message and an exit code, never a traceback."""

    # typer passes its own private context class, so the types can only be loose here.
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, with `--timeout` if it talks to a server."""
        command = super().get_command(ctx, cmd_name)
        _add_timeout(command)
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            from pequod.cli.connection import exit_code

            code = exit_code(error)
            if code is None:
                raise
            fail(code, str(error))


class BenchCommands(TyperGroup):
    """The benchmarks, which need packages that no other command needs."""

    def invoke(self, ctx: Any) -> Any:
        """Run the benchmark."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("pequod"):
                raise
            fail(ExitCode.REFUSED, f"the benchmarks need {error.name}: {how_to_install('bench')}")


def _add_timeout(command: Any) -> None:
    """Give a command, or those of a group, the option that every command with `--target` has."""
    for part in getattr(command, "commands", {}).values():
        _add_timeout(part)
    names = {parameter.name for parameter in getattr(command, "params", ())}
    # The option that is added is named after the parameter of the function below.
    if "target" in names and not names & {"timeout", "_timeout"}:
        command.params.append(_timeout_option())


def _set_timeout(value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        fail(ExitCode.USAGE, f"--timeout is {value:g}; it must be a number of seconds above 0")
    present_timeout_s.set(value)
    return value


_Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long the server may take to answer; most commands wait for 10 s.",
        callback=_set_timeout,
        expose_value=False,
    ),
]


@cache
def _timeout_option() -> Any:
    """Return the option as typer makes it from a function's parameter; typer has no public way to make one option."""
    made = typer.Typer(add_completion=False, rich_markup_mode=None)

    @made.command()
    def _only(_timeout: _Timeout = None) -> None:
        """A function with only this option."""

    command: Any = typer.main.get_command(made)
    return command.params[0]
