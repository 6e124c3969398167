"""What `cluster map save` does: the map that a server goes by in a file, once or again and again.

twip.toml        the latest
twip.5.toml      kept: a file for each version, the newest ones
twip.4.toml
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pequod.cli.cluster_asking import state_of_server
from pequod.cli.exits import ExitCode, fail, say

if TYPE_CHECKING:
    from pequod.cluster.map import ClusterState

_CLUSTER: Final = "pequod+cluster://"


def state_in(path: Path) -> ClusterState:
    """Return what a file says; its home groups need no home in it."""
    from pequod.cluster.document import read
    from pequod.errors import ClusterMapError

    try:
        return read(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.REFUSED, f"{path} cannot be read: {error}")
    except ClusterMapError as error:
        fail(ExitCode.REFUSED, f"{path}: {error}")


async def saved(path: Path, target: str) -> int:
    """Write the map that a server goes by to a file, and return its version.

    Raises:
        PequodError: No server answers, or the file cannot be written.
        typer.Exit: The file has a later map, or that of another cluster.
    """
    state = await _state_of(target)
    _refuse(path, target, state)
    _write(path, state)
    return state.map.version


async def save_on(path: Path, target: str, every_s: float, keep: int) -> None:
    """Save the map now and after each pause, until SIGINT or SIGTERM; keep a file for each of the newest versions.

    What fails is said once, and tried again after the pause.

    Raises:
        typer.Exit: The file has the map of another cluster, or cannot be read.
    """
    import asyncio

    from pequod.errors import PequodError

    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    version, fault = 0, ""
    while not ends.is_set():
        told = ""
        try:
            state = await _state_of(target)
            told = _later(path, target, state)
            if not told:
                _write(_of_version(path, state.map.version), state)
                _write(path, state)
                _remove_old(path, keep)
                if state.map.version != version:
                    version = state.map.version
                    print(f"version {version}", flush=True)
                elif fault:
                    say("the map is saved again")
        except PequodError as error:
            told = str(error)
        if told and told != fault:
            say(f"the map is not saved, which is tried again every {every_s:g} s: {told}")
        fault = told
        try:
            await asyncio.wait_for(ends.wait(), every_s)
        except TimeoutError:
            continue


async def _state_of(target: str) -> ClusterState:
    """Return what the first server that answers knows of its cluster."""
    from pequod.errors import DeadlineExceededError, UnavailableError

    addresses = target.removeprefix(_CLUSTER).split(",")
    for address in addresses[:-1]:
        try:
            return await state_of_server(address, with_joins=True)
        except (DeadlineExceededError, UnavailableError):
            continue
    return await state_of_server(addresses[-1], with_joins=True)


def _refuse(path: Path, target: str, state: ClusterState) -> None:
    if told := _later(path, target, state):
        fail(ExitCode.REFUSED, told)


def _later(path: Path, target: str, state: ClusterState) -> str:
    """Return that a file has a later map than a server; empty if it does not."""
    if not path.exists():
        return ""
    before = state_in(path).map
    if before.cluster != state.map.cluster:
        fail(ExitCode.REFUSED, f"{path} has the map of the cluster {before.cluster}; take another file")
    if before.version <= state.map.version:
        return ""
    return (
        f"{path} has version {before.version} of the map, and {target} goes by version {state.map.version}; if etcd "
        "was restored from an older backup, put the file back by `pequod cluster map restore`, else save in another "
        "file"
    )


def _write(path: Path, state: ClusterState) -> None:
    from pequod_server.cluster.static import write_anew

    write_anew(path, state)


def _of_version(path: Path, version: int) -> Path:
    return path.with_name(f"{path.stem}.{version}{path.suffix}")


def _remove_old(path: Path, keep: int) -> None:
    """Keep the files of the newest versions.

    Raises:
        ClusterMapError: One cannot be removed.
    """
    from pequod.errors import ClusterMapError

    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+){re.escape(path.suffix)}")
    found = [(int(match[1]), one) for one in path.parent.iterdir() if (match := pattern.fullmatch(one.name))]
    for _, one in sorted(found)[:-keep]:
        try:
            one.unlink(missing_ok=True)
        except OSError as error:
            raise ClusterMapError(str(one), f"it cannot be removed: {error.strerror}") from error
