"""The prompt of the shell: history in the user's state directory, completion of commands, joins and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from platformdirs import user_state_path
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from pequod.cli.connection import connected
from pequod.cli.statements import is_complete
from pequod.cli.text import escaped
from pequod.errors import PequodError


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a server has."""

    joins: tuple[str, ...] = ()
    #: Tables that hold rows or are computed, by the prefix of their keys: ``p|``.
    tables: tuple[str, ...] = ()


def names_of(target: str) -> Names:
    """Ask a server for its names; return none if it does not answer, or refuses."""
    try:
        with connected(target) as client:
            joins = client.joins()
            tables = {escaped(table) for table in client.statistics().tables}
    except PequodError:
        return Names()
    tables |= {join.text.partition("|")[0] for join in joins}
    return Names(tuple(join.name for join in joins), tuple(f"{table}|" for table in sorted(tables)))


class ShellCompleter(Completer):
    """Completes the last word.

    Args:
        group: The commands, as typer makes them.
    """

    def __init__(self, target: str, group: Any) -> None:
        self._target = target
        self._group = group
        self._names: Names | None = None

    def forget(self) -> None:
        """Have the server asked again when names are next needed."""
        self._names = None

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterator[Completion]:
        """Yield the completions of the word before the cursor."""
        said = document.text_before_cursor.split()
        word = "" if not said or document.text_before_cursor[-1].isspace() else said.pop()
        typed = word.lstrip("'\"")
        for candidate in self._candidates(said, typed):
            if candidate.startswith(typed):
                yield Completion(candidate, start_position=-len(typed))

    def _candidates(self, said: list[str], typed: str) -> tuple[str, ...]:
        if not said:
            return (*self._group.commands, "help", "session", "exit", "quit")
        command = self._group.commands.get(said[0])
        if said == ["help"]:
            return tuple(self._group.commands)
        if command is None:
            return ()
        if said[0] == "join":
            if len(said) == 1:
                return tuple(command.commands)
            command = command.commands.get(said[1])
            if said[1] in ("drop", "explain") and not typed.startswith("-"):
                return self._server().joins if len(said) == 2 else ()
        if typed.startswith("-") and command is not None:
            return tuple(option for parameter in command.params for option in parameter.opts if option[:2] == "--")
        return self._server().tables

    def _server(self) -> Names:
        if self._names is None:
            self._names = names_of(self._target)
        return self._names


def typed(target: str, group: Any) -> Iterator[str]:
    """Yield the statements that a person types at a prompt, until Ctrl-D."""
    completer = ShellCompleter(target, group)
    session: PromptSession[str] = PromptSession(
        f"{target}> ",
        history=_history(),
        completer=completer,
        complete_while_typing=False,
        # Enter ends a complete statement, or else a line of it.
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
        prompt_continuation="... ",
    )
    while True:
        completer.forget()
        try:
            yield session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _history() -> History:
    """Return the history; values may be secret, so only the user may read the file."""
    file = user_state_path("pequod") / "shell_history"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError as error:
        print(f"pequod: warning: this history will not be kept: {error}", file=sys.stderr)
        return InMemoryHistory()
    return FileHistory(str(file))
