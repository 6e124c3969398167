"""What is heavy is imported when it is asked for: a client does without the engine, an engine without gRPC."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

from pequod.engine import Engine

SCRIPT = """
import sys
import pequod
{script}
print(*(name for name in {names} if name in sys.modules))
"""
HEAVY = (
    "asyncio",
    "grpc",
    "lark",
    "rich",
    "typer",
    "pyspark",
    "pequod.cli.bench",
    "pequod.engine",
    "pequod_grammar",
    "pequod_server",
)


def imported(script: str) -> list[str]:
    """Return which of the heavy modules are imported after a script, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(script=script, names=HEAVY)],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_importing_pequod_imports_nothing_heavy() -> None:
    assert imported("pass") == []


def test_a_client_does_without_the_engine() -> None:
    assert imported("from pequod import AsyncClient, Client, Token, max_age") == ["asyncio", "grpc"]


def test_an_engine_does_without_a_network() -> None:
    assert imported("from pequod.engine import Engine") == ["pequod.engine"]


def test_an_embedded_store_does_without_grpc() -> None:
    assert imported("pequod.open") == ["asyncio", "lark", "pequod.engine", "pequod_grammar"]


def test_all_commands_can_be_listed_without_what_they_work_with() -> None:
    script = """
import typer
from pequod.cli.app import app
assert all(command.get_short_help_str() for command in typer.main.get_command(app).commands.values())
"""
    assert imported(script) == ["typer", "pequod.cli.bench"]


def test_a_command_that_talks_to_a_server_does_without_the_engine_and_other_commands() -> None:
    """Nobody listens at the port."""
    command = "scan a b --target 127.0.0.1:1 --timeout 0.1"
    script = f"""
from pequod.cli.app import app
try:
    app({command.split()!r})
except SystemExit as ended:
    assert ended.code == 4, ended.code
"""
    assert imported(script) == ["asyncio", "grpc", "typer"]


#: What a command of the table of kinds, or many of them together, do on an engine: handlers leave it to the executor.
COMMAND_VERBS = {"get", "put", "put_all", "remove", "remove_range", "scan", "count", "run_quick", "write_if", "add"}
COMMAND_VERBS |= {"put_for", "expire", "remaining_ms"}
#: What other files of the handlers ask of an engine, since it is no command: joins and state, watches, backfills.
NO_COMMANDS = {"administration.py", "backfilling.py", "feed.py", "feeds.py", "following.py", "leases.py", "served.py"}
NO_COMMANDS |= {"building.py", "checking.py", "preparing.py", "replacing.py"}
SERVER = Path(__file__).parents[1] / "server" / "pequod_server"


def engine_verbs(path: Path) -> set[str]:
    """Return which methods of an engine a file names."""
    verbs = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")}
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in verbs
        and ast.unparse(node.value).rpartition(".")[2].removeprefix("_") == "engine"
    }


def test_handlers_run_no_command_on_the_engine_themselves() -> None:
    found = {
        path.name: verbs
        for room in ("calls", "wire")
        for path in sorted((SERVER / room).glob("*.py"))
        if (verbs := engine_verbs(path))
    }
    assert found.keys() <= NO_COMMANDS, found
    assert not [name for name, verbs in found.items() if verbs & COMMAND_VERBS], found


def test_what_a_command_does_is_found_where_it_is_said() -> None:
    """The test above would find it: the executor and the table of verbs do name the engine's methods."""
    assert engine_verbs(SERVER / "steps" / "executor.py") & COMMAND_VERBS == {"put_all", "remove_range"}
    assert engine_verbs(SERVER.parents[1] / "pequod" / "engine" / "answer.py") == {
        "get",
        "put",
        "remove",
        "scan",
        "count",
        "write_if",
        "add",
        "put_for",
        "expire",
        "remaining_ms",
    }
