"""serve: run a server in the foreground. Its flags are made from the settings only when they are needed."""

from __future__ import annotations

from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from pequod_installed.names import how_to_install
from typer.core import TyperCommand

from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_server.settings import Settings
    from pydantic.fields import FieldInfo

app: Final = typer.Typer()

CONFIG_VARIABLE: Final = "PEQUOD_CONFIG"
_Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", envvar=CONFIG_VARIABLE, help="Read settings from this TOML file."),
]
_SHORT: Final = {"listen": ("-l",)}


class _Serve(TyperCommand):
    """Stands for the command until its options are needed, since `pequod --help` must not import the settings."""

    # typer passes its own private context class, so the types can only be loose here.
    def get_params(self, ctx: Any) -> Any:
        return _command().get_params(ctx)

    def invoke(self, ctx: Any) -> Any:
        return _command().invoke(ctx)


@app.command(
    "serve",
    cls=_Serve,
    epilog=examples(
        "pequod serve --data ./data",
        "pequod serve --config pequod.toml --value-bytes-max 4MiB",
        "PEQUOD_ROWS_MAX=1000 pequod serve",
        "pequod serve --listen 0.0.0.0:7744 --tls-certificate cert.pem --tls-key key.pem --access-file access.toml",
        "pequod serve --metrics 127.0.0.1:9464   (metrics and health over HTTP)",
        "pequod serve --listen 127.0.0.1:0       (any free port; the first line tells which)",
    ),
)
def serve() -> None:
    """Run a server until Ctrl-C or SIGTERM. Calls under way may finish, unless the signal comes twice.

    With --data, base data and joins are in a folder, and are there after any end of the server. Without it, a server
    starts empty, with the joins that its settings list.

    Each setting can be in the file (rows_max = 100), in a variable (PEQUOD_ROWS_MAX=100) or in a flag
    (--rows-max 100); flags win over variables, and these over the file. `pequod config show` prints the effective ones.
    Sizes are bytes, or have a unit: 65536, 64KiB, 4MiB.
    """
    raise AssertionError("_Serve runs the command with its options")


@cache
def _command() -> TyperCommand:
    """Return the command with a flag for each setting; typer asks for it several times."""
    config_module = server_module("config")

    def run(config: Path | None, **flags: Any) -> None:
        _run(config, {name: value for name, value in flags.items() if value is not None and value != []})

    parameters = [Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=_Config)]
    for name, field in config_module.ServerConfig.model_fields.items():
        default = config_module.written(name, field.default)
        annotation = _flag(name, field, config_module.metavar(name), default)
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    made.command()(run)
    command = typer.main.get_command(made)
    assert isinstance(command, TyperCommand)
    return command


def _flag(name: str, field: FieldInfo, metavar: str, default: str) -> Any:
    """Return the annotation of a flag: text, which the settings check; None if the flag is not given."""
    flag = f"--{name.replace('_', '-')}"
    text = f"{field.description} [default: {default}]" if default else field.description
    if field.annotation is bool:
        text = f"{field.description} [default: {'on' if field.default else 'off'}]"
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag.removeprefix('--')}", help=text)]
    option = typer.Option(flag, *_SHORT.get(name, ()), metavar=metavar, help=text, show_default=False)
    return Annotated[list[str] | None if isinstance(field.default, tuple) else str | None, option]


def _run(file: Path | None, flags: dict[str, Any]) -> None:
    settings = loaded(file, flags)
    from pequod_server.settings import ConfigError

    has_workers = settings.config.workers != "1" or settings.config.worker_port or settings.config.worker_spread > 1
    running = server_module("workers.supervisor" if has_workers else "running")

    try:
        code = running.run(settings.config, joins_from=settings.place("joins"))
    except ConfigError as error:
        refuse(error.problems)
    raise typer.Exit(ExitCode(code))


def loaded(file: Path | None, flags: dict[str, Any]) -> Settings:
    """Return the settings, or end the command with all that is wrong with them."""
    settings = server_module("settings")
    try:
        found: Settings = settings.load(file, flags)
    except settings.ConfigError as error:
        refuse(error.problems)
    return found


def refuse(problems: tuple[str, ...]) -> NoReturn:
    """Print what is wrong with the configuration, and end the command."""
    if len(problems) == 1:
        fail(ExitCode.USAGE, problems[0])
    fail(ExitCode.USAGE, "\n  ".join([f"{len(problems)} things are wrong with the configuration:", *problems]))


def server_module(module: str) -> Any:
    """Import a module of the server, which needs packages that the client does not."""
    from importlib import import_module

    try:
        return import_module(f"pequod_server.{module}")
    except ImportError as error:
        fail(ExitCode.REFUSED, f"the server needs {error.name}: {how_to_install('server')}")
