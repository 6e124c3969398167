"""Commands whose options are the fields of a settings' dataclass."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from enum import StrEnum
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, TypeVar

from pequod.cli.bench import Json, Smoke
from pequod.cli.exits import ExitCode, fail

S = TypeVar("S")

_NUMBERS = tuple[int, ...]


def of_settings(
    settings: type[S], smoke: Mapping[str, object] | None = None, *, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function that takes settings, some options of its own, and whether to print JSON.

    The options are the fields that have one (``Annotated[int, typer.Option(...)]``), then the function's own, then
    --smoke, if there is a small size, and --json. A field of several numbers is written ``1,2,4``.

    Args:
        settings: A dataclass with a default for each field.
        smoke: The values that --smoke puts in place of what was said; None: there is no such option.
        without: Fields that are no options of this command.
    """
    hints = typing.get_type_hints(settings, include_extras=True)
    options = [
        field
        for field in fields(settings)  # type: ignore[arg-type]
        if typing.get_origin(hints[field.name]) is Annotated and field.name not in without
    ]
    last = {"json": Json} if smoke is None else {"smoke": Smoke, "json": Json}

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(body, eval_str=True).parameters.values())[1:-1]
        parameters = [
            *(_parameter(field, hints[field.name]) for field in options),
            *own,
            *(Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=kind) for name, kind in last.items()),
        ]

        def command(**given: Any) -> None:
            values = {field.name: _value(field, given.pop(field.name)) for field in options}
            if given.pop("smoke", False):
                values.update(smoke or {})
            body(settings(**values), **given)

        command.__doc__ = body.__doc__
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        each_by_name = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
        command.__signature__ = Signature(each_by_name)  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(field: Field[Any], hint: Any) -> Parameter:
    """Return the parameter of an option.

    The choices of a `Literal` become an enumeration, as typer wants them, and several numbers a text.
    """
    kind, option = typing.get_args(hint)
    default: Any = field.default
    if typing.get_origin(kind) is Literal:
        choices: Any = StrEnum(field.name, {choice.upper(): choice for choice in typing.get_args(kind)})  # type: ignore[misc]
        kind, default = choices, choices(default)
    elif kind == _NUMBERS:
        kind, default, option.metavar = str, _text(default), "N,N,..."
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _value(field: Field[Any], said: Any) -> Any:
    """Return the value of a field by what was said."""
    if isinstance(said, StrEnum):
        return said.value
    if not isinstance(field.default, tuple):
        return said
    try:
        numbers = tuple(int(part) for part in said.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        option = f"--{field.name.replace('_', '-')}"
        fail(ExitCode.USAGE, f"{option} takes numbers such as {_text(field.default)}, not {said!r}")
    return numbers


def _text(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
