"""Levels of freshness on the command line, and the session of the shell."""

from __future__ import annotations

import json

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
def test_a_duration_is_seconds_minutes_hours_or_days(text: str, seconds: float) -> None:
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


def test_a_token_of_a_write_is_good_for_reads(pequod: Pequod) -> None:
    token = pequod("put", "fresh|1", "v", "--token").out.strip()
    assert Token.parse(token).positions
    for level in (("--after", token), ("--latest",), ("--max-age", "500ms"), ("--after", token, "--wait", "0s")):
        assert pequod("get", "fresh|1", *level).out == "v\n"
        assert pequod("scan", "--prefix", "fresh|", *level).out == "fresh|1\tv\n"
        assert pequod("scan", "--prefix", "fresh|", "--keys-only", *level).out == "fresh|1\n"
        assert pequod("count", "--prefix", "fresh|", *level).out == "1\n"
    later = json.loads(pequod("put", "fresh|1", "w", "--json").out)["token"]
    assert Token.parse(later) != Token.parse(token)


def test_a_token_of_a_server_that_is_gone_is_lost(pequod: Pequod) -> None:
    for command in ("get", "scan", "count", "watch"):
        outcome = pequod(command, "fresh|1", "--after", GONE)
        assert (outcome.code, outcome.out) == (3, "")
        assert "go on without the token" in outcome.err


def test_the_shell_is_a_session(pequod: Pequod) -> None:
    outcome = pequod("shell", stdin=b"session\nput fresh|2 v\nsession\nget fresh|2\nsession\n")
    before, written, value, read = outcome.out.splitlines()
    assert (outcome.code, before, value) == (0, "", "v")
    assert Token.parse(written).positions
    assert read == written
    again = pequod("shell", stdin=f"session {written}\nget fresh|2\nsession\n".encode())
    assert again.out.splitlines() == ["v", written]


def test_the_shell_forgets_a_token_that_is_lost(pequod: Pequod) -> None:
    outcome = pequod("shell", stdin=f"session {GONE}\ncount fresh|\nsession\ncount --prefix nothing|\n".encode())
    assert outcome.out == "\n0\n"
    assert "the shell forgets what it has seen" in outcome.err
    assert outcome.code == 3


def test_the_shell_refuses_what_is_no_token(pequod: Pequod) -> None:
    outcome = pequod("shell", stdin=b"session pq1.AAAA\nsession a b\n")
    assert outcome.code == 2
    assert "this is no token" in outcome.err
