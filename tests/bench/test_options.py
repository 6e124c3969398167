"""Commands that are made of settings: each field with an option is one, with the default of the field."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from inspect import isclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import pytest
import typer
from pequod_bench import settings as sizes
from pequod_bench.report.printed import Printed, WrongAnswerError
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClientsSettings
from rich.console import Console
from typer.testing import CliRunner

from pequod.cli.bench_options import measuring


@dataclass(frozen=True)
class _Sizes:
    rows: Annotated[int, typer.Option(min=1, help="Rows.")] = 7
    shape: Annotated[Literal["table", "groups"], typer.Option(help="Shape.")] = "groups"
    reads: Annotated[int, typer.Option("--calls", help="Calls.")] = 3
    sizes: Annotated[tuple[int, ...], typer.Option(help="Sizes.")] = (1, 2)
    others: Annotated[tuple[int, ...], typer.Option(help="None unless said.")] = ()
    place: Annotated[Path | None, typer.Option(help="Place.")] = None
    hidden: Annotated[int, typer.Option(help="No option of this command.")] = 4
    replicas: int = 5


@dataclass(frozen=True)
class _Seen(Printed):
    settings: dict[str, Any]

    def fault(self) -> str:
        return "four rows" if self.settings["rows"] == 4 else ""

    def unmeasured(self) -> str:
        return "five rows are too many" if self.settings["rows"] == 5 else ""

    def print_table(self, console: Console) -> None:
        console.print(f"{self.settings['rows']} rows")


_app = typer.Typer()


@measuring(_app, "show", _Sizes, {"rows": 2}, without=("hidden",), shown=("show --rows 9",))
def show(settings: _Sizes, _bars: ProgressBars) -> Printed:
    """Print what was said."""
    if settings.rows == 3:
        raise WrongAnswerError("three rows")
    shape = f"{settings.shape} of {type(settings.shape).__name__}"
    return _Seen({**asdict(settings), "shape": shape, "place": str(settings.place)})


def _run(*arguments: str) -> dict[str, object]:
    found = CliRunner().invoke(_app, [*arguments, "--json"])
    assert found.exit_code == 0, found.output
    said: dict[str, object] = json.loads(found.output)["settings"]
    return said


def test_without_options_the_settings_are_the_defaults_of_the_fields() -> None:
    assert _run() == {**asdict(_Sizes()), "sizes": [1, 2], "others": [], "shape": "groups of str", "place": "None"}


def test_options_reach_their_fields() -> None:
    said = _run(
        "--rows", "9", "--shape", "table", "--calls", "4", "--sizes", "7,8,9", "--others", "3", "--place", "there"
    )
    fields = {
        "rows": 9,
        "shape": "table of str",
        "reads": 4,
        "sizes": [7, 8, 9],
        "others": [3],
        "hidden": 4,
        "replicas": 5,
    }
    assert said == {**fields, "place": "there"}


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
    assert "show --rows 9" in text
    assert "--replicas" not in text
    assert ClientsSettings().client_loop == "uvloop"


@pytest.mark.parametrize(
    ("rows", "code", "out", "err"),
    [
        ("2", 0, "2 rows\n", ""),
        ("3", 1, "", "pequod: the answers are wrong: three rows\n"),
        ("4", 1, "4 rows\n", "pequod: the answers are wrong: four rows\n"),
        ("5", 1, "5 rows\n", "pequod: five rows are too many\n"),
    ],
)
def test_a_report_that_is_wrong_or_not_whole_is_exit_code_1(rows: str, code: int, out: str, err: str) -> None:
    found = CliRunner().invoke(_app, ["--rows", rows])
    assert (found.exit_code, found.stdout, found.stderr) == (code, out, err)


#: The commands whose options are fields of settings, and the module of each.
_COMMANDS = {
    "bench": {
        "twip",
        "feed",
        "micro",
        "store",
        "scale",
        "clients",
        "wire",
        "replace",
        "ranges",
        "lakes",
        "views",
        "indexes",
        "cluster",
        "compare",
    },
    "cluster_demo": {"demo"},
}


@pytest.mark.parametrize("module", _COMMANDS)
def test_every_option_of_a_benchmark_is_a_field_of_its_settings(module: str) -> None:
    commands: Any = typer.main.get_command(_with_two(importlib.import_module(f"pequod.cli.{module}").app))
    assert _COMMANDS[module] == set(commands.commands) - {"other"}
    known = {"json", "smoke", "help"}.union(*map(_options, _settings()))
    for name in _COMMANDS[module]:
        assert {parameter.name for parameter in commands.commands[name].params} <= known, name


def _with_two(app: typer.Typer) -> typer.Typer:
    """Return an app with another command beside, or one of a single command would be that command."""
    both = typer.Typer()
    both.add_typer(app)
    both.command("other")(lambda: None)
    return both


def _settings() -> list[type]:
    return [each for each in vars(sizes).values() if isclass(each) and is_dataclass(each)]


def _options(kind: type) -> set[str]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name for field in fields(kind) if get_origin(hints[field.name]) is Annotated}
