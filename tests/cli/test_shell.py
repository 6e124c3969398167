"""The shell runs commands at a prompt or from standard input, tells errors, and goes on."""

from __future__ import annotations

import json
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_installed.names import how_to_install
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from pequod.cli.prompt import Names, ShellCompleter, names_of
from pequod.cli.shell import Runner
from pequod.cli.statements import is_complete, words
from pequod.client import Client
from tests.cli.conftest import Pequod
from tests.cli.terminal import on_a_terminal


@pytest.fixture(autouse=True)
def client(target: str) -> Iterator[Client]:
    """Yield a client of the module's server, which is empty."""
    with Client(target) as client:
        for join in client.joins():
            client.drop_join(join.name)
        for key, _ in client.scan(""):
            client.remove(key)
        yield client


SCRIPT = """\
# timelines
join add t|<user>|<time:4>|<poster> =
  check s|<user>|<poster>   // who follows whom
  copy p|<poster>|<time>;

put s|ann|bob 1
put p|bob|0001 "hello there"
get t|ann|0001|bob
scan --prefix t|ann| --json
count -p p|
join list --json
join explain t
explain t|ann| t|ann}
stats
rm p|bob|0001
scan ''
join drop t
"""


def test_a_script_runs_line_by_line(pequod: Pequod) -> None:
    outcome = pequod("shell", stdin=SCRIPT.encode())
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].startswith("t\tt|<user>|<time:4>|<poster> = check")
    assert lines[1] == "hello there"
    assert json.loads(lines[2]) == {"key": "t|ann|0001|bob", "value": "hello there"}
    assert lines[3] == "1"
    assert json.loads(lines[4])["name"] == "t"
    assert lines[-1] == "s|ann|bob\t1"
    assert any(line.startswith("maintenance: push") for line in lines)
    assert any("the next read will" in line for line in lines)


def test_errors_are_told_and_the_next_command_runs(pequod: Pequod, client: Client) -> None:
    script = b"get nothing\nfrobnicate\nput 'a\njoin add x|<a> = copy y|<b>;\nput a\nput a \xff\nscan '' --limit x\n"
    outcome = pequod("shell", stdin=script)
    assert outcome.code == 1
    assert client.scan("") == [(b"a", b"\xff")]
    for number, (said, code) in enumerate(
        [
            ("key nothing is not there", 1),
            ("No such command 'frobnicate'", 2),
            ("No closing quotation", 2),
            ("no source gives a value", 3),
            ("put needs a VALUE", 2),
        ],
        start=1,
    ):
        assert said in outcome.err
        assert f"line {number} ended with exit code {code}" in outcome.err
    assert "line 7 ended with exit code 2" in outcome.err
    assert "Traceback" not in outcome.err


def test_no_server_is_told_and_survived(pequod: Pequod) -> None:
    outcome = pequod("shell", stdin=b"get a\nhelp join add\n", target="127.0.0.1:1")
    assert outcome.code == 4
    assert "pequod serve" in outcome.err
    assert "Install one join or several" in outcome.out


def test_exit_and_the_end_of_the_input_end_it(pequod: Pequod, client: Client) -> None:
    for word in ("exit", "quit"):
        assert pequod("shell", stdin=f"put a 1\n{word}\nrm a\n".encode()).code == 0
        assert client.get("a") == b"1"
    outcome = pequod("shell", stdin=b"put b 2\n\njoin add x|<a> = copy y|<a>")
    assert (outcome.code, "line 3: the join has no end" in outcome.err) == (2, True)
    assert (client.joins(), client.get("b")) == ([], b"2")
    assert pequod("shell", stdin=b"").code == 0


def test_help_is_the_same_each_time_that_it_is_asked_for(pequod: Pequod) -> None:
    once, twice = (pequod("shell", stdin=b"help get\n" * count).out for count in (1, 2))
    assert once.count("--timeout") == 1
    assert twice.count("--timeout") == 2


def test_help_lists_the_commands_and_explains_each(pequod: Pequod) -> None:
    listed = pequod("shell", stdin=b"help\n").out
    for command in ("put", "get", "rm", "scan", "count", "join", "explain", "stats", "watch"):
        assert f"\n  {command} " in listed
        assert f"Usage: pequod {command} " in pequod("shell", stdin=f"help {command}\n".encode()).out


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("scan a", True),
        ("join list", True),
        ("join add", False),
        ("join add a|<b> = copy c|<b>", False),
        ("join add a|<b> = copy c|<b>;", True),
        ("join add a|<b> = copy c|<b>; // the end\n", True),
        ("join add a|<b> = // not yet;", False),
        ("join add --json a|<b> = copy c|<b> ; ", True),
        ("join add --help", True),
        ("join add @joins.pequod", True),
        ("join address", True),
    ],
)
def test_a_join_ends_with_a_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_words_are_those_of_a_shell() -> None:
    assert words("put p|a 'x y' \"\"") == ["put", "p|a", "x y", ""]
    assert words("  # rest") == words("") == []
    assert words("join add --json a|<b> = copy 'c'|<b>;") == ["join", "add", "--json", "--", "a|<b> = copy 'c'|<b>;"]


def completed(text: str, target: str) -> list[str]:
    completer = ShellCompleter(target, Runner(target).group)
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


def test_completion_knows_commands_joins_and_tables(client: Client, target: str) -> None:
    client.add_join("karma|<author> = count vote|<author>|<voter>")
    client.put("vote|ann|bob", "")
    client.put("city|rome", "")
    assert names_of(target) == Names(("karma",), ("city|", "karma|", "vote|"))
    assert completed("", target)[:3] == ["put", "get", "rm"]
    assert completed("e", target) == ["expire", "explain", "exit"]
    assert completed("join ", target) == ["add", "replace", "apply", "list", "drop", "explain"]
    assert completed("join drop k", target) == ["karma"]
    assert completed("join explain ", target) == ["karma"]
    assert completed("scan 'v", target) == ["vote|"]
    assert completed("scan --prefix ", target) == ["city|", "karma|", "vote|"]
    assert completed("scan --re", target) == ["--reverse"]
    assert completed("help st", target) == ["stats"]
    assert completed("join add x|<a> = copy c", target) == ["city|"]
    assert completed("nothing ", target) == []
    assert completed("scan ", "127.0.0.1:1") == []


def test_the_prompt_completes_and_remembers(client: Client, target: str, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path), "PROMPT_TOOLKIT_NO_CPR": "1"}
    with on_a_terminal("shell", target=target, **state) as terminal:
        terminal.wait_for(f"{target}>")
        terminal.type("put city|rome eternal\r")
        terminal.wait_for(f"{target}>")
        terminal.type("get nothing\r")
        terminal.wait_for("key nothing is not there")
        terminal.wait_for(f"{target}>")
        terminal.type("get ci\t")
        terminal.wait_for("ty|")
        terminal.type("rome\r")
        terminal.wait_for("eternal\r\n")
        terminal.wait_for(f"{target}>")
        terminal.type("join add n|<a> =\r")
        terminal.wait_for("...")
        terminal.type("count m|<a>|<b>;\r")
        terminal.wait_for("n|<a> = count m|<a>|<b>\r\n")
        terminal.wait_for(f"{target}>")
        terminal.type("watch --rows city|\r")
        terminal.wait_for("eternal")
        client.put("city|rome", "new")
        terminal.wait_for("~ city|rome")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for(f"{target}>")
        terminal.type("\x04")
        assert terminal.end() == 0
    history = tmp_path / "pequod" / "shell_history"
    assert "+put city|rome eternal\n" in history.read_text()
    assert "+join add n|<a> =\n+count m|<a>|<b>;\n" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with on_a_terminal("shell", target=target, **state) as terminal:
        terminal.wait_for(f"{target}>")
        terminal.type("\x1b[A\x1b[A\x1b[A\x1b[A\r")
        terminal.wait_for("new\r\n")
        terminal.type("exit\r")
        assert terminal.end() == 0


def test_without_prompt_toolkit_the_message_says_what_to_install(target: str, tmp_path: Path) -> None:
    (tmp_path / "prompt_toolkit.py").write_text("raise ModuleNotFoundError('no', name='prompt_toolkit')")
    with on_a_terminal("shell", target=target, PYTHONPATH=str(tmp_path)) as terminal:
        terminal.wait_for(how_to_install("shell"))
        assert terminal.end() == 3


def test_the_prompt_is_imported_only_where_it_is_shown(pequod: Pequod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.delitem(sys.modules, "pequod.cli.prompt", raising=False)
    assert pequod("shell", stdin=b"count ''\n").out == "0\n"
