"""A network namespace with one cable to this machine, which can be pulled out."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.installed import lacking

_SERVING: Final = re.compile(r"serving on \S+\n")


class InnerServer:
    """A server in a namespace; it listens once this is made."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ""
        while not _SERVING.search(said):
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            assert line, f"the server ended:\n{said}"
            said += line

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it without a word."""
        with self._process as process:
            process.kill()


class CutNetwork:
    """A namespace, and both ends of the cable."""

    def __init__(self, name: str, number: int) -> None:
        self._name = name
        self.outside = f"10.213.{number}.1"
        self.inside = f"10.213.{number}.2"

    def started(self, *flags: str) -> InnerServer:
        """Return `pequod serve` in the namespace, once it listens."""
        return InnerServer(["ip", "netns", "exec", self._name, sys.executable, "-m", "pequod.cli", "serve", *flags])

    def cut(self) -> None:
        """Pull the cable out, at the namespace's end: addresses outside stay as they are."""
        _ip("-n", self._name, "link", "set", "cable", "down")

    def mend(self) -> None:
        """Put the cable in again."""
        _ip("-n", self._name, "link", "set", "cable", "up")


@contextmanager
def cut_network() -> Iterator[CutNetwork]:
    """Make a namespace; where that is not allowed, the test is skipped."""
    name, number = f"pq{secrets.token_hex(3)}", 1 + secrets.randbelow(250)
    try:
        _ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        lacking(f"no network namespace can be made here ({error}): that takes root, and iproute2")
    try:
        network = CutNetwork(name, number)
        _ip("link", "add", name, "type", "veth", "peer", "name", "cable", "netns", name)
        _ip("address", "add", f"{network.outside}/30", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "address", "add", f"{network.inside}/30", "dev", "cable")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "cable", "up")
        yield network
    finally:
        _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20, env=dict(os.environ))
