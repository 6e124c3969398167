"""shell: the commands at a prompt, or line by line from standard input."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer
from pequod_installed.names import how_to_install

from pequod.cli import data, decided, expiry, inspect, joins, ping, transaction, watch
from pequod.cli.connection import DEFAULT_TARGET, Target
from pequod.cli.exits import ExitCode, fail
from pequod.cli.freshness import Held, held_by_shell
from pequod.cli.group import CONTEXT, CommandGroup
from pequod.cli.statements import is_complete, words
from pequod.cli.teaching import examples

app: Final = typer.Typer()

_COMMANDS_HELP: Final = """The commands of `pequod`, without `pequod` before them.

Only words with spaces need quotes. A join ends with a semicolon, and may have several lines. `help COMMAND` tells more
of one, Ctrl-C ends what is under way, Ctrl-D, `exit` or `quit` the shell. The shell is a session: each command shows
what those before it have written and read. `session` prints its token, `session TOKEN` goes on from another one's.
"""

commands: Final = typer.Typer(
    cls=CommandGroup, help=_COMMANDS_HELP, rich_markup_mode=None, add_completion=False, context_settings=CONTEXT
)
for _part in (data.app, transaction.app, decided.app, expiry.app, inspect.app, ping.app, watch.app):
    commands.add_typer(_part)
commands.add_typer(joins.app, name="join")


@app.command(
    "shell",
    epilog=examples(
        "pequod shell",
        "pequod shell < commands.txt",
        "echo 'count --prefix p|' | pequod shell",
    ),
)
def shell(target: Target = DEFAULT_TARGET) -> None:
    """Give commands at a prompt, with history and completion (Tab): put, get, scan, join add, watch and so on.

    The words are those of the command line without `pequod`; only words with spaces need quotes. A join ends with a
    semicolon, and may have several lines. If a command fails, its error is printed and the shell goes on.

    The shell is a session: each command shows at least what those before it have written and read, whichever server
    beside the same database answers. `session` prints its token, `session TOKEN` goes on from another one's.

    If standard input is not a terminal, its lines are the commands, and # begins a comment; the exit code is that of
    the first command that failed.
    """
    run = Runner(target)
    if sys.stdin.isatty():
        try:
            from pequod.cli.prompt import typed
        except ImportError as error:
            fail(ExitCode.REFUSED, f"the prompt needs {error.name}: {how_to_install('shell')}; or pipe commands in")
        print("help lists the commands, Tab completes, Ctrl-D ends")
        for text in typed(target, run.group):
            if run.is_ended_by(text):
                break
        return
    code = _run_script(run)
    if code:
        raise typer.Exit(code)


class Runner:
    """Runs statements of one session, each with its own connection, which takes 3 ms."""

    def __init__(self, target: str) -> None:
        self._target = target
        #: The commands, as typer makes them; its types are private.
        self.group: Any = typer.main.get_command(commands)
        #: Exit code of the latest statement.
        self.code = 0
        self._held = Held()

    def is_ended_by(self, text: str) -> bool:
        """Run a statement; return whether it is the one that ends the shell."""
        self.code = 0
        try:
            said = words(text)
        except ValueError as error:
            self.code = ExitCode.USAGE
            print(f"pequod: {error}; put a word with quotes in it into quotes of the other kind", file=sys.stderr)
            return False
        if said in (["exit"], ["quit"]):
            return True
        if said[:1] == ["session"]:
            self.code = self._session(said[1:])
        elif said:
            self.code = self._run(said)
        return False

    def _session(self, tokens: list[str]) -> int:
        """Print the token of this session, or go on from another one's."""
        from pequod.errors import InvalidTokenError
        from pequod.freshness import Token

        if not tokens:
            print(self._held.token, flush=True)
            return ExitCode.DONE
        try:
            (self._held.token,) = (str(Token.parse(token)) for token in tokens)
        except InvalidTokenError as error:
            print(f"pequod: {error}", file=sys.stderr)
            return ExitCode.USAGE
        except ValueError:
            print("pequod: session takes one token, or none", file=sys.stderr)
            return ExitCode.USAGE
        return ExitCode.DONE

    def _run(self, said: list[str]) -> int:
        if said[0] == "help":
            arguments = [*said[1:], "--help"]
        else:
            path = 2 if said[0] == "join" else 1
            target = ["--target", self._target] if len(said) >= path else []
            arguments = [*said[:path], *target, *said[path:]]
        before = held_by_shell.set(self._held)
        try:
            self.group.main(args=arguments, prog_name="pequod")
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            held_by_shell.reset(before)
            sys.stdout.flush()
        return 0


def _run_script(run: Runner) -> int:
    """Run the lines of standard input and return the exit code of the first that failed."""
    first_code = 0
    with _own_input() as lines:
        for line_number, text in _statements(lines):
            if not is_complete(text):
                fail(ExitCode.USAGE, f"line {line_number}: the join has no end; put a semicolon behind it")
            if run.is_ended_by(text):
                break
            if run.code:
                print(f"pequod: line {line_number} ended with exit code {run.code:d}", file=sys.stderr)
            if run.code == ExitCode.INTERRUPTED:
                return ExitCode.INTERRUPTED
            first_code = first_code or run.code
    return first_code


def _statements(lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    """Yield each statement with the number of its first line; the last one may be incomplete."""
    text, first_line = "", 1
    for number, line in enumerate(lines, start=1):
        text += line
        if is_complete(text):
            yield first_line, text
            text, first_line = "", number + 1
    if text:
        yield first_line, text


class _NoInput(io.StringIO):
    """Replaces standard input while the shell reads it: commands see a terminal, and do not read it."""

    def isatty(self) -> bool:
        return True


@contextmanager
def _own_input() -> Iterator[Iterator[str]]:
    """Hide standard input from the commands; yield its lines, with their bytes in the form of arguments."""
    source = sys.stdin
    sys.stdin = _NoInput()
    try:
        yield (os.fsdecode(line) for line in source.buffer)
    finally:
        sys.stdin = source
