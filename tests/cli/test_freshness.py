"""Levels of freshness on the command line, and the session of the shell."""

from __future__ import annotations

import pytest
import typer

from pequod.cli.freshness import duration_s
from pequod.freshness import Mark, Token, database_of
from tests.cli.conftest import Pequod

#: Of a server that is gone.
GONE = str(Token({Mark(database_of("server", 1), 0): 5}))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2.0), ("500ms", 0.5), ("1m", 60.0), ("1.5", 1.5), (".5s", 0.5), ("0s", 0.0), ("1h", 3600.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s("--wait", text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "2 days", "1e3s", "nan"])
def test_what_is_no_duration_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        duration_s("--wait", text)
    assert end.value.exit_code == 2
    assert "such as 2s" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["get", "scan", "count", "watch"])
def test_a_read_has_one_level(pequod: Pequod, command: str) -> None:
    outcome = pequod(command, "a", "--latest", "--max-age", "2s")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--latest and --max-age do not go together" in outcome.err
    outcome = pequod(command, "a", "--wait", "2s")
    assert (outcome.code, outcome.err) == (2, "pequod: --wait goes with --after, --latest or --max-age\n")


@pytest.mark.parametrize("command", ["get", "scan", "count", "watch"])
def test_a_forged_token_is_an_error_of_the_command_line(pequod: Pequod, command: str) -> None:
    outcome = pequod(command, "a", "--after", "pq1.AAAA")
    assert (outcome.code, outcome.out) == (2, "")
    assert "this is no token" in outcome.err
