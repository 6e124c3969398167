"""How commands reach a server: targets that are none, limits on time, a server that goes away and comes back."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import typer

from pequod import Client
from pequod.cli.app import app
from pequod.errors import SettingError
from tests.cli.conftest import Pequod
from tests.forked import started_server


@pytest.mark.parametrize("target", ["127.0.0.1:99999", "127.0.0.1:0", " ", "cache", ":7744", "unix:"])
def test_a_target_that_is_none_is_a_usage_error(pequod: Pequod, target: str, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = pequod("watch" if target == "cache" else "get", "a", "--target", target)
    assert outcome.code == 2, outcome.err
    assert "give HOST:PORT, such as 127.0.0.1:7744, or unix:PATH" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert capfd.readouterr() == ("", ""), "nothing of a library's, which writes to the process's own streams"


def test_clients_refuse_a_target_that_is_none() -> None:
    for target in ("", "cache", "cache:99999"):
        with pytest.raises(SettingError, match="give HOST:PORT"):
            Client(target)


def test_the_target_may_stand_before_the_command(pequod: Pequod, target: str) -> None:
    assert pequod("-t", target, "put", "before", "1", target="127.0.0.1:1").code == 0
    assert pequod("--target", target, "get", "before", target="127.0.0.1:1").out == "1\n"
    assert pequod("-t", "127.0.0.1:1", "get", "before", "-t", target).out == "1\n", "the nearer one holds"
    assert pequod("-t", target, "join", "list", target="127.0.0.1:1").code == 0
    assert pequod("get", "before").out == "1\n", "and for that command alone"


def _commands(group: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, command in getattr(group, "commands", {}).items():
        found += [(*path, name)] if any(one.name == "target" for one in command.params) else []
        found += _commands(command, (*path, name))
    return found


COMMANDS = _commands(typer.main.get_command(app))


def test_every_command_with_a_target_has_a_timeout(pequod: Pequod) -> None:
    assert len(COMMANDS) > 20
    for path in COMMANDS:
        assert "--timeout SECONDS" in pequod(*path, "--help").out, path


def test_a_server_that_does_not_answer_is_given_up_in_time(pequod: Pequod) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        outcome = pequod("get", "a", "--timeout", "0.3", target=f"127.0.0.1:{silent.getsockname()[1]}")
        assert outcome.code == 4
        assert "did not answer within 0.3 s" in outcome.err
    for wrong in ("0", "-1", "soon", "nan", "inf"):
        assert pequod("get", "a", "--timeout", wrong).code == 2


def test_rm_as_data(pequod: Pequod) -> None:
    for number in range(3):
        pequod("put", f"rm|{number}", "x")
    assert json.loads(pequod("rm", "rm|0", "--json").out) == {"removed": 1}
    outcome = pequod("rm", "rm|0", "--json")
    assert (outcome.code, json.loads(outcome.out)) == (1, {"removed": 0})
    assert json.loads(pequod("rm", "--prefix", "rm|", "--json").out) == {"removed": 2}


def test_top_as_data(pequod: Pequod) -> None:
    pequod("put", "top|1", "x")
    shown = json.loads(pequod("top", "--once", "--json", "--interval", "0.05").out)
    (line,) = [line for line in shown["lines"] if line["name"] == "top"]
    assert (line["kind"], line["keys"]) == ("table", 1)


def test_config_check_tells_everything_at_once(pequod: Pequod, tmp_path: Any) -> None:
    file = tmp_path / "pequod.toml"
    file.write_text(
        'listen = "0.0.0.0:7744"\naccess_file = "no.toml"\nbacking = "oracle:x"\nbacking_mapping = "no.toml"\n'
        'joins = "t|<a> = coutn p|<a>"\n'
    )
    outcome = pequod("config", "check", str(file))
    assert outcome.code == 2
    assert "4 things are wrong" in outcome.err
    for word in ("listen", "access_file", "backing", "coutn"):
        assert word in outcome.err


class _Follower:
    """A command that goes on, and what it has said so far."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-u", "-m", "pequod.cli", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line

    def wait_for(self, pattern: str) -> None:
        until_s = time.monotonic() + 30
        while not re.search(pattern, self.said):
            assert time.monotonic() < until_s, self.said
            time.sleep(0.02)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def test_top_and_watch_wait_for_a_server_that_went_away() -> None:
    with started_server() as (target, pid):
        top = _Follower("top", "--json", "--interval", "0.1", "--timeout", "2", "-t", target)
        watch = _Follower("watch", "a", "--rows", "-t", target)
        top.wait_for('"revision": 0')
        with Client(target) as client:
            until_s = time.monotonic() + 30
            while "+ a\t1" not in watch.said:
                assert time.monotonic() < until_s, watch.said
                client.remove("a")
                client.put("a", "1")
                time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        top.wait_for(f"pequod: no server at {target}; waiting for it")
        watch.wait_for("pequod: the server went away: .*; it is tried again for 30 s")
        with started_server("--listen", target):
            top.wait_for('waiting for it\n{.*"revision": 0')
            watch.wait_for("pequod: the watch cannot go on")
            assert watch.process.wait(30) == 3, "another server cannot tell what happened"
            watch.end()
            assert top.end() in (0, 130)
    assert "Traceback" not in top.said + watch.said
