"""config check and config show: the settings that a server would start with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pequod.cli.connection import Json
from pequod.cli.serve import CONFIG_VARIABLE, loaded, refuse
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

if TYPE_CHECKING:
    from pequod_server.settings import Settings

    from pequod.engine import JoinInfo

_HELP: Final = """Check and show the settings of a server.

They come from defaults, a TOML file, variables PEQUOD_* and the flags of `pequod serve`; the later wins.
"""

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)

File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", envvar=CONFIG_VARIABLE, help="The TOML file; without it, variables alone."),
]


@app.command("check", epilog=examples("pequod config check pequod.toml"))
def check(file: File = None) -> None:
    """Report what is wrong with the settings of a file and the variables; exit code 2 if anything is.

    If the settings are right, it reports what is wrong with the joins and the files that they name. A server with these
    settings would report the same, and not start.
    """
    settings = loaded(file, {})
    from pequod_server.settings import misspelt_variables

    for variable, meant in misspelt_variables().items():
        print(f"pequod: warning: {variable} is no setting; did you mean {meant}?", file=sys.stderr)
    joins: list[JoinInfo] = []
    if problems := _problems(settings, joins):
        refuse(tuple(problems))
    for join in joins:
        for warning in join.warnings:
            print(f"pequod: warning: join {join.name}: {warning}", file=sys.stderr)
    print(f"{file or 'environment'}: right; joins: {len(joins)}")


def _problems(settings: Settings, joins: list[JoinInfo]) -> list[str]:
    """Return why a server with these settings would not start; append the joins that it would install."""
    import asyncio

    # With all that a server has: the size of the process says whether the limit of memory is too low.
    from pequod_server.access.guard import make_guard
    from pequod_server.access.tls import tls_files
    from pequod_server.app import PequodServer
    from pequod_server.joins import install_joins
    from pequod_server.memory.keeper import MemoryKeeper, limit_bytes
    from pequod_server.settings import ConfigError
    from pequod_server.snapshots.locations import place_of
    from pequod_server.stores import make_disk, make_store
    from pequod_server.transport.choice import choose
    from pequod_server.workers.plan import check_workers

    from pequod.engine import Engine
    from pequod.errors import ClusterMapError, SettingError, SnapshotError

    config = settings.config
    problems: list[str] = []

    def http() -> None:
        if config.http:
            from pequod_server.gateway.gateway import refuse_exposed

            refuse_exposed(config)

    def snapshot() -> None:
        if (place := place_of(config)) is not None:
            place.try_it()

    async def make_and_close() -> None:
        await PequodServer(config).close()

    def whole() -> None:
        # What its parts refuse only together: nothing is opened, and nothing listens. It would repeat their problems.
        if not problems:
            asyncio.run(make_and_close())

    for one in (
        lambda: tls_files(config),
        lambda: choose(config.transport),
        lambda: make_guard(config, Engine()),
        http,
        lambda: make_store(config),
        lambda: make_disk(config, Engine()),
        snapshot,
        lambda: check_workers(config),
        lambda: MemoryKeeper(Engine(), limit_bytes(config.memory_limit)),
        lambda: joins.extend(install_joins(Engine(), config, joins_from=settings.place("joins"))),
        whole,
    ):
        try:
            one()
        except ConfigError as error:
            problems += error.problems
        except (SettingError, ClusterMapError, SnapshotError, ImportError) as error:
            problems.append(str(error))
    return problems


@app.command(
    "show",
    epilog=examples("pequod config show", "pequod config show pequod.toml", "pequod config show > pequod.toml"),
)
def show(file: File = None, json: Json = False) -> None:
    """Print the effective settings and the origin of each, as a file that `pequod serve --config` takes.

    Passwords are shown as ***: put them back into a file that is made in this way, or into the variable PEQUOD_BACKING.
    """
    settings = loaded(file, {})
    lines = []
    for name, value in settings.config:
        shown, origin = _plain(name, value), settings.origins[name]
        if json:
            lines.append((json_line({"name": name, "value": shown, "from": origin}), ""))
        elif value is None:
            lines.append((f"# {name} is not set", origin))
        else:
            lines.append((f"{name} = {_toml(shown)}", origin))
    width = min(60, max(len(line) for line, _ in lines))
    for line, origin in lines:
        print(f"{line:<{width}}  # {origin}" if origin else line)


def _plain(name: str, value: Any) -> Any:
    from pequod_server.config import metavar, without_passwords, written

    if name == "backing":
        return without_passwords(value)
    if isinstance(value, tuple):
        return [str(part) for part in value]
    if isinstance(value, Path) or metavar(name) == "SIZE":
        return written(name, value)
    return value


def _toml(value: Any) -> str:
    """Return a value as TOML, which is as JSON for these few types, except for the byte 0x7f."""
    import json

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
