"""Commands that measure: their options are the fields of a settings' dataclass, and they print a report."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from enum import StrEnum
from importlib import import_module
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_bench.report.printed import Printed
    from pequod_bench.report.progress import ProgressBars

S = TypeVar("S")
Described = TypeVar("Described", bound=Callable[..., Any])
#: Measures what settings say, with bars that show how far it is.
Measure = Callable[[S, "ProgressBars"], "Printed"]

_SMOKE: Final = Annotated[bool, typer.Option("--smoke", help="Tiny sizes: shows that all runs, figures mean nothing.")]
#: Characters of a line where the output is no terminal: more than any table has.
_FILE_WIDTH: Final = 200
_JSON: Final = Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress bar.")]


def measuring(
    app: typer.Typer,
    name: str,
    settings: type[S],
    smoke: Mapping[str, object] | None = None,
    *,
    without: tuple[str, ...] = (),
    short_help: str | None = None,
    shown: tuple[str, ...],
    by: str = "",
) -> Callable[[Described], Described]:
    """Make a command of a function that measures; its docstring is the help. The report is printed as a table or JSON.

    The options are the fields that have one (``Annotated[int, typer.Option(...)]``), then --smoke, if there is a small
    size, and --json. A field of several numbers is written ``1,2,4``.

    Args:
        settings: A dataclass with a default for each field.
        smoke: The values that --smoke puts in place of what was said; None: there is no such option.
        without: Fields that are no options of this command.
        short_help: The line of the command in the help of its group, if not the first of its own help.
        shown: Lines to type, for the help.
        by: The module whose ``run`` measures, if it is not the function itself, which has nothing but the help then.
            It is imported when the command runs.
    """
    hints = typing.get_type_hints(settings, include_extras=True)
    options = [
        field
        for field in fields(settings)  # type: ignore[arg-type]
        if typing.get_origin(hints[field.name]) is Annotated and field.name not in without
    ]
    last = {"json": _JSON} if smoke is None else {"smoke": _SMOKE, "json": _JSON}
    parameters = [
        *(_parameter(field, hints[field.name]) for field in options),
        *(Parameter(each, Parameter.KEYWORD_ONLY, default=False, annotation=kind) for each, kind in last.items()),
    ]

    def decorate(described: Described) -> Described:
        def command(**given: Any) -> None:
            values = {field.name: _value(field, given[field.name]) for field in options}
            if given.get("smoke"):
                values.update(smoke or {})
            measure: Measure[S] = import_module(by).run if by else described
            _show(measure, settings(**values), json=given["json"])

        command.__doc__ = described.__doc__
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, short_help=short_help, epilog=examples(*shown))(command)
        return described

    return decorate


def _show(measure: Measure[S], settings: S, *, json: bool) -> None:
    """Measure, and print the report; end with exit code 1 if something was not what it had to be."""
    from pequod_bench.report.printed import WrongAnswerError
    from pequod_bench.report.progress import ProgressBars
    from rich.console import Console

    try:
        report = measure(settings, ProgressBars(Console(stderr=True, quiet=json)))
    except WrongAnswerError as error:
        fail(ExitCode.WRONG, f"the answers are wrong: {error}")
    if json:
        print(report.to_json())
    else:
        console = Console(highlight=False)
        # In a file nothing is cut off.
        report.print_table(console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH))
    if fault := report.fault():
        fail(ExitCode.WRONG, f"the answers are wrong: {fault}")
    if unmeasured := report.unmeasured():
        fail(ExitCode.WRONG, unmeasured)


def _parameter(field: Field[Any], hint: Any) -> Parameter:
    """Return the parameter of an option.

    The choices of a `Literal` become an enumeration, as typer wants them, and several numbers a text.
    """
    kind, option = typing.get_args(hint)
    default: Any = field.default
    if typing.get_origin(kind) is Literal:
        choices: Any = StrEnum(field.name, {choice.upper(): choice for choice in typing.get_args(kind)})  # type: ignore[misc]
        kind, default = choices, choices(default)
    elif kind == tuple[int, ...]:
        kind, default, option.metavar = str, ",".join(map(str, default)), "N,N,..."
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _value(field: Field[Any], said: Any) -> Any:
    """Return the value of a field by what was said."""
    if isinstance(said, StrEnum):
        return said.value
    if not isinstance(field.default, tuple):
        return said
    if not said and not field.default:
        # It was not given.
        return field.default
    try:
        numbers = tuple(int(part) for part in said.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        option = f"--{field.name.replace('_', '-')}"
        fail(
            ExitCode.USAGE,
            f"{option} takes numbers such as {','.join(map(str, field.default)) or '48,200'}, not {said!r}",
        )
    return numbers
