"""A group of commands, and the one place where errors become exit codes."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

from pequod.cli.exits import ExitCode, fail

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Commands(TyperGroup):
    """The root group: an error that Pequod foresees is a message and an exit code, never a traceback."""

    # typer hands its own private context class in, so the types can only be loose here.
    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            from pequod.cli.connection import exit_code

            code = exit_code(error)
            if code is None:
                raise
            fail(code, str(error))


class BenchCommands(TyperGroup):
    """The benchmarks, which need packages that nothing else needs."""

    def invoke(self, ctx: Any) -> Any:
        """Run the benchmark that is named."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("pequod"):
                raise
            fail(ExitCode.REFUSED, f"the benchmarks need {error.name}: pip install 'pequod[bench]'")
