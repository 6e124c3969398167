"""Options that are made of settings: each field with an option is one, with the default of the field."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import pytest
import typer
from pequod_bench.settings import ClientsSettings
from typer.testing import CliRunner

from pequod.cli.bench import Json
from pequod.cli.bench_options import of_settings


@dataclass(frozen=True)
class _Sizes:
    rows: Annotated[int, typer.Option(min=1, help="Rows.")] = 7
    shape: Annotated[Literal["table", "groups"], typer.Option(help="Shape.")] = "groups"
    reads: Annotated[int, typer.Option("--calls", help="Calls.")] = 3
    sizes: Annotated[tuple[int, ...], typer.Option(help="Sizes.")] = (1, 2)
    hidden: Annotated[int, typer.Option(help="No option of this command.")] = 4
    replicas: int = 5


_app = typer.Typer()


@_app.command()
@of_settings(_Sizes, {"rows": 2}, without=("hidden",))
def show(settings: _Sizes, target: str = "here", json: Json = False) -> None:
    """Print what was said."""
    shape = f"{settings.shape} of {type(settings.shape).__name__}"
    print(_json({**asdict(settings), "shape": shape, "target": target, "json": json}))


def _json(value: object) -> str:
    return json.dumps(value)


def _run(*arguments: str) -> dict[str, object]:
    found = CliRunner().invoke(_app, arguments)
    assert found.exit_code == 0, found.output
    said: dict[str, object] = json.loads(found.output)
    return said


def test_without_options_the_settings_are_the_defaults_of_the_fields() -> None:
    assert _run() == {**asdict(_Sizes()), "sizes": [1, 2], "shape": "groups of str", "target": "here", "json": False}


def test_options_reach_their_fields_and_the_functions_own_ones_the_function() -> None:
    said = _run("--rows", "9", "--shape", "table", "--calls", "4", "--sizes", "7,8,9", "--target", "there", "--json")
    fields = {"rows": 9, "shape": "table of str", "reads": 4, "sizes": [7, 8, 9], "hidden": 4, "replicas": 5}
    assert said == {**fields, "target": "there", "json": True}


def test_smoke_replaces_its_fields_alone() -> None:
    said = _run("--smoke", "--rows", "9", "--shape", "table")
    assert (said["rows"], said["shape"]) == (2, "table of str")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rows", "0"),
        ("--shape", "circle"),
        ("--replicas", "1"),
        ("--hidden", "1"),
        ("--sizes", "1,many"),
        ("--sizes", "0"),
    ],
)
def test_what_no_field_takes_is_refused(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(_app, arguments).exit_code == 2


def test_a_command_has_its_own_help_and_defaults() -> None:
    text = CliRunner().invoke(_app, ["--help"]).output
    assert "Print what was said." in text
    assert "--replicas" not in text
    assert ClientsSettings().client_loop == "uvloop"
