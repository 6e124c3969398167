"""Commands whose options are the fields of a settings' dataclass."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from enum import StrEnum
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, Literal, TypeVar

from pequod.cli.bench import Json, Smoke

S = TypeVar("S")

#: What a command adds at the end.
_LAST: Final = {"smoke": Smoke, "json": Json}


def of_settings(settings: type[S], smoke: Mapping[str, object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function that takes settings, some options of its own, and whether to print JSON.

    The options are the fields that have one (``Annotated[int, typer.Option(...)]``), then the function's own, then
    --smoke and --json.

    Args:
        settings: A dataclass with a default for each field.
        smoke: The values that --smoke puts in place of what was said.
    """
    hints = typing.get_type_hints(settings, include_extras=True)
    options = [field for field in fields(settings) if typing.get_origin(hints[field.name]) is Annotated]  # type: ignore[arg-type]

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(body, eval_str=True).parameters.values())[1:-1]
        last = [Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=kind) for name, kind in _LAST.items()]
        parameters = [*(_parameter(field, hints[field.name]) for field in options), *own, *last]

        def command(**given: Any) -> None:
            said = {field.name: given.pop(field.name) for field in options}
            values = {name: value.value if isinstance(value, StrEnum) else value for name, value in said.items()}
            if given.pop("smoke"):
                values.update(smoke)
            body(settings(**values), **given)

        command.__doc__ = body.__doc__
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        each_by_name = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
        command.__signature__ = Signature(each_by_name)  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(field: Field[Any], hint: Any) -> Parameter:
    """Return the parameter of an option; the choices of a `Literal` become an enumeration, as typer wants them."""
    kind, option = typing.get_args(hint)
    default: Any = field.default
    if typing.get_origin(kind) is Literal:
        choices: Any = StrEnum(field.name, {choice.upper(): choice for choice in typing.get_args(kind)})  # type: ignore[misc]
        kind, default = choices, choices(default)
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
