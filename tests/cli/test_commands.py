"""The commands do what they say, against a real server, and end with the codes that they document."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pequod_installed.names import how_to_install, version
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.cli.conftest import Pequod
from tests.forked import run_command

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


def test_the_tour_of_the_help_works(pequod: Pequod) -> None:
    added = pequod("join", "add", TIMELINE)
    assert (added.code, added.out.split("\t")[0]) == (0, "t")
    assert pequod("put", "s|ann|bob", "1").code == 0
    assert pequod("put", "p|bob|0000000100", "hello").code == 0
    scanned = pequod("scan", "--prefix", "t|ann|")
    assert (scanned.code, scanned.out, scanned.err) == (0, "t|ann|0000000100|bob\thello\n", "")
    assert pequod("count", "--prefix", "t|ann|").out == "1\n"


def test_an_absent_key_ends_get_and_rm_with_1(pequod: Pequod) -> None:
    for command in ("get", "rm"):
        outcome = pequod(command, "a|nothing")
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err == "pequod: key a|nothing is not there\n"
    assert json.loads(pequod("get", "--json", "a|nothing").out) == {"key": "a|nothing", "value": None}


def test_put_get_rm(pequod: Pequod) -> None:
    assert pequod("put", "a|1", "eins").code == 0
    assert pequod("get", "a|1").out == "eins\n"
    assert json.loads(pequod("get", "--json", "a|1").out) == {"key": "a|1", "value": "eins"}
    assert pequod("rm", "a|1").code == 0
    assert pequod("get", "a|1").code == 1


def test_a_value_may_come_from_standard_input(pequod: Pequod) -> None:
    assert pequod("put", "a|page", stdin=b"line\nline\n").code == 0
    assert pequod("get", "a|page").out == "line\nline\n\n"
    pequod("rm", "a|page")


def test_scan_takes_bounds_limits_and_directions(pequod: Pequod) -> None:
    for key in ("r|1", "r|2", "r|3"):
        pequod("put", key, "v")

    def keys(*arguments: str) -> list[str]:
        return [line.split("\t")[0] for line in pequod("scan", *arguments).out.splitlines()]

    assert keys("r|", "r}") == keys("--prefix", "r|") == ["r|1", "r|2", "r|3"]
    assert keys("r|2", "r|3") == ["r|2"]
    assert keys("-p", "r|", "--limit", "2") == ["r|1", "r|2"]
    assert keys("-p", "r|", "--limit", "2", "--reverse") == ["r|3", "r|2"]
    assert keys("-p", "r|", "--limit", "0") == []
    assert keys("r|3")[0] == "r|3"
    assert keys("r|3", "r|1") == []
    assert keys("") == sorted(keys(""))
    rows = [json.loads(line) for line in pequod("scan", "-p", "r|", "--json").out.splitlines()]
    assert rows == [{"key": f"r|{i}", "value": "v"} for i in (1, 2, 3)]
    assert json.loads(pequod("count", "-p", "r|", "--json").out) == {"count": 3}


def test_scan_prints_keys_only(pequod: Pequod) -> None:
    for key in ("ko|1", "ko|2"):
        pequod("put", key, "v")
    assert pequod("scan", "-p", "ko|", "--keys-only").out == "ko|1\nko|2\n"
    assert pequod("scan", "-p", "ko|", "-k", "-r", "-n", "1", "--json").out == '{"key": "ko|2"}\n'


def test_rm_takes_ranges_and_prefixes(pequod: Pequod) -> None:
    for key in ("rr|1", "rr|2", "rr|3", "rr|4"):
        pequod("put", key, "v")
    assert (pequod("rm", "--range", "rr|1", "rr|3").out, pequod("count", "-p", "rr|").out) == ("2\n", "2\n")
    assert (pequod("rm", "--prefix", "rr|").out, pequod("count", "-p", "rr|").out) == ("2\n", "0\n")
    again = pequod("rm", "--prefix", "rr|")
    assert (again.code, again.out) == (0, "0\n")


def test_joins_are_added_listed_and_dropped(pequod: Pequod, tmp_path: Path) -> None:
    file = tmp_path / "joins.pequod"
    file.write_text("k1|<a> = count v1|<a>|<b>;\nk2|<a> = sum v2|<a>|<b>;\n")
    assert [line.split("\t")[0] for line in pequod("addjoin", f"@{file}").out.splitlines()] == ["k1", "k2"]
    assert pequod("join", "add", "-", stdin=b"k3|<a> = max v3|<a>|<b>").code == 0
    listed = [json.loads(line) for line in pequod("join", "list", "--json").out.splitlines()]
    texts = {join["name"]: join["text"] for join in listed}
    assert texts["k2"] == "k2|<a> = sum v2|<a>|<b>"
    assert pequod("join", "drop", "k2").code == 0
    assert "k2" not in pequod("join", "list").out
    again = pequod("join", "drop", "k2")
    assert (again.code, "pequod join list" in again.err) == (3, True)


def test_a_join_takes_the_place_of_another(pequod: Pequod) -> None:
    count, total = "shift|<a> = count told|<a>|<b>", "shift|<a> = sum told|<a>|<b>"
    pequod("join", "add", count)
    pequod("put", "told|1|2", "5")
    assert pequod("get", "shift|1").out == "1\n"
    replaced = pequod("join", "replace", "shift", total)
    assert (replaced.code, replaced.out, replaced.err) == (0, f"shift\t{total}\n", "")
    assert pequod("get", "shift|1").out == "5\n"
    assert pequod("join", "replace", "shift", "--undo").out == f"shift\t{count}\n"
    assert pequod("get", "shift|1").out == "1\n"
    cancelled = pequod("join", "replace", "shift", "--cancel")
    assert (cancelled.code, "is under way" in cancelled.err) == (1, True)
    for arguments in ((), ("--undo", "--cancel"), (total, "--undo")):
        refused = pequod("join", "replace", "shift", *arguments)
        assert (refused.code, "give a TEXT, or --undo, or --cancel" in refused.err) == (2, True)
    other = pequod("join", "replace", "shift", "elsewhere|<a> = sum told|<a>|<b>")
    assert (other.code, other.out) == (3, "")
    assert "computes keys of another table" in other.err


def test_a_bad_join_is_refused_with_its_place(pequod: Pequod) -> None:
    outcome = pequod("join", "add", "x|<a> = copy y|<b>")
    assert (outcome.code, outcome.out) == (3, "")
    assert "line 1" in outcome.err
    assert "^" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_computed_key_is_refused(pequod: Pequod) -> None:
    pequod("join", "add", "c|<a> = count d|<a>|<b>")
    outcome = pequod("put", "c|1", "5")
    assert (outcome.code, outcome.out) == (3, "")
    assert "computed" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("get",),
        ("scan", "a", "--limit", "-1"),
        ("scan", "a", "b", "--prefix"),
        ("rm", "a", "b"),
        ("rm", "a", "b", "--prefix"),
        ("rm", "a", "--range"),
        ("rm", "a", "b", "--range", "--prefix"),
        ("join", "add", "@/nowhere/joins"),
        ("bench", "twip", "--ticks", "0"),
        ("bench", "twip", "--join-file", "/nowhere/joins"),
    ],
)
def test_a_wrong_command_line_ends_with_2(pequod: Pequod, arguments: tuple[str, ...]) -> None:
    outcome = pequod(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err


@pytest.mark.parametrize("arguments", [("get", "a"), ("put", "a", "b"), ("scan", "a"), ("join", "list")])
def test_no_server_ends_with_4_and_advice(pequod: Pequod, arguments: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    outcome = pequod(*arguments, target=f"127.0.0.1:{port}")
    assert (outcome.code, outcome.out) == (4, "")
    assert "pequod serve" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_bytes_that_are_no_text_go_in_and_out(pequod: Pequod, process: Pequod) -> None:
    assert process("put", b"b|\xff", b"\x80\t1").code == 0
    assert process("scan", "-p", "b|").out == "b|\\xff\t\\x80\\t1\n"
    row = json.loads(pequod("scan", "-p", "b|", "--json").out)
    assert row == {"key": {"base64": "Ynz/"}, "value": {"base64": "gAkx"}}
    assert process("rm", b"b|\xff").code == 0


def test_help_teaches_and_imports_little(process: Pequod) -> None:
    outcome = process("--help")
    assert "pequod join add" in outcome.out
    assert "Exit codes" in outcome.out
    heavy = "import sys, pequod.cli.app; print([m for m in ('grpc', 'numpy', 'rich', 'asyncio') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", heavy]) == b"[]\n"


COMMANDS = (
    "serve",
    "put",
    "get",
    "rm",
    "scan",
    "count",
    "add",
    "cas",
    "ping",
    "explain",
    "stats",
    "join add",
    "join drop",
    "join replace",
    "join explain",
    "load",
    "dump",
    "top",
    "shell",
)


def test_every_command_has_help_with_an_example() -> None:
    for command in (*COMMANDS, "bench twip"):
        result = CliRunner().invoke(app, [*command.split(), "--help"])
        assert result.exit_code == 0
        assert "\\b" not in result.stdout, command
        assert f"pequod {command}" in result.stdout, command


def test_a_second_server_on_a_port_is_refused(target: str) -> None:
    outcome = run_command("serve", "--listen", target)
    assert (outcome.code, outcome.out) == (3, "")
    assert "is another server there?" in outcome.err
    assert "Traceback" not in outcome.err


def prepares(bench: psutil.Process) -> bool:
    return sum(bench.cpu_times()[:2]) > 0.5


def runs(bench: psutil.Process) -> bool:
    return any(link.status == psutil.CONN_ESTABLISHED for link in bench.net_connections("tcp"))


@pytest.mark.parametrize("is_there", [prepares, runs])
def test_ctrl_c_ends_a_benchmark_without_a_traceback(is_there: Callable[[psutil.Process], bool]) -> None:
    # The installed command: under `python -m`, CPython may die of the signal instead, which only a shell tells as 130.
    command = [str(Path(sys.executable).with_name("pequod")), "bench", "twip", "--users", "500", "--mode", "pull"]
    with subprocess.Popen([*command, "--ticks", "300000"], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as bench:
        watched = psutil.Process(bench.pid)
        while not is_there(watched):
            time.sleep(0.02)
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=60)
    assert (bench.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize("arguments", [("watch", "--rows", "quiet|"), ("watch", "--rows", "quiet|", "--json")])
def test_ctrl_c_ends_a_quiet_watch_without_a_traceback(pequod: Pequod, target: str, arguments: tuple[str, ...]) -> None:
    pequod("put", "quiet|1", "row")
    command = [sys.executable, "-m", "pequod.cli", *arguments, "--target", target]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        assert b"quiet|1" in watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=60)
    assert (watch.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize("command", ["twip", "clients", "compare"])
def test_a_benchmark_without_its_packages_says_what_to_install(command: str) -> None:
    script = "import sys; sys.modules.update(numpy=None, psutil=None); from pequod.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "bench", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    needed = re.escape(how_to_install("bench"))
    assert re.fullmatch(rf"pequod: the benchmarks need (numpy|psutil): {needed}\n", done.stderr)


def test_a_write_under_a_condition_says_why_it_is_not_done(pequod: Pequod) -> None:
    assert pequod("put", "--if-absent", "lock|a", "me").code == 0
    taken = pequod("put", "--if-absent", "lock|a", "you")
    assert (taken.code, taken.out) == (1, "me\n")
    assert "the condition does not hold: key lock|a is there" in taken.err
    assert pequod("put", "--if-value", "me", "lock|a", "you").code == 0
    missing = pequod("put", "--if-present", "lock|b", "me", "--json")
    assert missing.code == 1
    assert '"met": false, "value": null' in missing.out
    assert pequod("rm", "--if-value", "me", "lock|a").code == 1
    assert pequod("rm", "--if-value", "you", "lock|a").code == 0
    assert pequod("put", "--if-absent", "--if-present", "lock|a", "x").code == 2
    assert pequod("rm", "--prefix", "--if-value", "x", "lock|").code == 2


def test_add_prints_the_sum(pequod: Pequod) -> None:
    assert pequod("add", "visits|home", "5").out == "5\n"
    assert pequod("add", "--", "visits|home", "-0.5").out == "4.5\n"
    shown = json.loads(pequod("add", "--json", "visits|home", "1").out)
    assert shown["value"] == "5.5"
    pequod("put", "visits|text", "many")
    for key, delta, words in (
        ("visits|text", "1", "the value of key 'visits|text' is no number"),
        ("visits|home", "one", "is no number that can be added"),
        ("visits|home", "9" * 64, "would take more than 64 bytes"),
    ):
        refused = pequod("add", key, delta)
        assert (refused.code, refused.out) == (3, "")
        assert words in refused.err
    assert pequod("get", "visits|text").out == "many\n"


def test_negative_numbers_are_arguments(pequod: Pequod) -> None:
    assert pequod("add", "below|1", "-3").out == "-3\n"
    assert pequod("add", "--json", "below|1", "-.5", "--timeout=5").code == 0
    assert pequod("add", "--", "below|1", "-1").out == "-4.5\n"
    assert pequod("put", "below|1", "-12").code == 0
    assert pequod("cas", "below|1", "-12", "-13").code == 0
    assert pequod("get", "below|1").out == "-13\n"
    for wrong in (("--jsom", "-1"), ("below|1", "-1", "--jsom")):
        refused = pequod("add", *wrong)
        assert (refused.code, "--jsom" in refused.err) == (2, True)
    assert pequod("get", "below|1").out == "-13\n"


def test_cas_swaps_and_says_what_is_there(pequod: Pequod) -> None:
    missing = pequod("cas", "light|1", "red", "green")
    assert (missing.code, missing.out) == (1, "")
    assert "the condition does not hold: key light|1 is not there" in missing.err
    pequod("put", "light|1", "red")
    assert pequod("cas", "light|1", "red", "green").code == 0
    other = pequod("cas", "light|1", "red", "blue")
    assert (other.code, other.out) == (1, "green\n")
    assert json.loads(pequod("cas", "--json", "light|1", "red", "blue").out)["met"] is False
    assert pequod("get", "light|1").out == "green\n"


def test_ping_tells_the_round_trip_the_server_and_its_version(pequod: Pequod) -> None:
    told = re.fullmatch(r"\S+:\d+ answers in [\d.]+ ms: server (\d+), version (\S+)\n", pequod("ping").out)
    assert told is not None
    shown = json.loads(pequod("ping", "--json").out)
    assert (str(shown["server_id"]), shown["version"]) == told.groups()
    assert shown["version"] == version()
    assert shown["round_trip_ms"] > 0
    silent = pequod("ping", target="127.0.0.1:1")
    assert (silent.code, silent.out) == (4, "")


def test_a_key_that_expires_says_how_long_it_lives(pequod: Pequod) -> None:
    assert pequod("put", "--ttl", "1800", "session|17", "ann").code == 0
    assert 1700 < float(pequod("ttl", "session|17").out) <= 1800
    assert json.loads(pequod("ttl", "session|17", "--json").out)["expires"]
    assert pequod("persist", "session|17").code == 0
    assert pequod("ttl", "session|17").out == "never\n"
    assert json.loads(pequod("ttl", "session|17", "--json").out) == {"ttl_s": None, "expires": False}
    assert json.loads(pequod("expire", "session|17", "0.001", "--json").out) == {"was_there": True}
    time.sleep(0.01)
    for command in (("ttl",), ("persist",), ("expire",)):
        outcome = pequod(*command, "session|17", *(["5"] if command == ("expire",) else []))
        assert (outcome.code, outcome.err) == (1, "pequod: key session|17 is not there\n")
    assert pequod("put", "--ttl", "1800", "session|17", "ann").code == 0
    assert pequod("put", "--keep-ttl", "session|17", "bob").code == 0
    assert 1700 < float(pequod("ttl", "session|17").out) <= 1800
    both = pequod("put", "--keep-ttl", "--ttl", "5", "session|17", "bob")
    assert (both.code, both.err) == (2, "pequod: give --ttl or --keep-ttl, not both\n")
    refused = pequod("expire", "session|17", "-5")
    assert (refused.code, "above 0, and at most a hundred years" in refused.err) == (3, True), refused.err
    refused = pequod("put", "--ttl", "-1", "session|17", "ann")
    assert refused.code == 3
    assert "a time to live of -1.0 s" in refused.err
