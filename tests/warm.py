"""What each server and command would make anew, 50 ms: the process that forks them for tests imports this."""

from pequod_grammar import parse

from pequod.cli.serve import _command

# The parser is kept, and so is what typer makes of each of the command's many flags.
parse("t|<user> = copy p|<user>")
_command().make_context("pequod serve", [])
