"""`python -m tests.views.versioned.masters`, which is `make views-masters`: processes that write the same records.

Each run has two or three processes of the operating system, which write records that all of them write, and one of
their own each, of which they read what they wrote. They are killed and stopped at random moments. In the end sweeps
leave the view of the base, as every majority of the replicas has it, and the base has what was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from pequod_views.versioned import (
    QuorumError,
    RecordStore,
    ShareLeases,
    SqliteReplicas,
    StoredCell,
    StoreSession,
    Swept,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewLateError,
    ViewSweeper,
)
from pequod_views.versioned.records import Cells, newest
from pequod_views.versioned.scanning import KeyScan

from tests.forked import FORKS
from tests.views.versioned.oracle import rows_in, updates_in, view_of
from tests.views.versioned.schedules import VIEW, of_seed
from tests.views.versioned.updates import random_updates

#: Under any load of the machine.
_END_S_MAX: Final = 300.0
_SWEEPS_MAX: Final = 20


class Site(Protocol):
    """A store that processes open by themselves, and a folder for what they note."""

    folder: Path
    view: VersionedView
    lease_s: float

    async def open(self) -> RecordStore:
        """Connect to the store, whose tables are made if they are not there."""
        ...

    async def close(self, store: RecordStore) -> None:
        """Disconnect from it."""
        ...

    async def cut_off(self, store: RecordStore, rng: random.Random) -> None:
        """Have replicas be out of reach for a process, again and again, until it is cancelled."""
        ...

    def torment(self, rng: random.Random) -> None:
        """Have a replica fail, and let it return."""
        ...

    async def states(self, store: RecordStore) -> list[dict[str, dict[str, Cells]]]:
        """Bring replicas to one state, and return the records of tables, as each of some majorities has them."""
        ...


class Sqlite:
    """Three files."""

    def __init__(self, folder: Path, view: VersionedView = VIEW) -> None:
        self.folder = folder
        self.view = view
        self.lease_s = 1.0
        self._paths = [folder / f"{number}.db" for number in range(3)]

    async def open(self) -> SqliteReplicas:
        """Open the files."""
        return SqliteReplicas(self._paths, synchronous="OFF")

    async def close(self, store: RecordStore) -> None:
        """Close the files."""
        assert isinstance(store, SqliteReplicas)
        store.close()

    async def cut_off(self, store: RecordStore, rng: random.Random) -> None:
        """Have files be out of reach, mostly one."""
        assert isinstance(store, SqliteReplicas)
        while True:
            await asyncio.sleep(rng.uniform(0, 0.1))
            store.down = set(rng.sample(range(3), rng.choice([0, 0, 1, 1, 2])))

    def torment(self, rng: random.Random) -> None:
        """Leave the files alone: each process has some out of reach."""

    async def states(self, store: RecordStore) -> list[dict[str, dict[str, Cells]]]:
        """Read each two of three files."""
        assert isinstance(store, SqliteReplicas)
        await store.spread()
        found = []
        for pair in itertools.combinations(range(3), 2):
            store.down = set(range(3)) - set(pair)
            found.append({table: await records(store, table) for table in (self.view.base, self.view.name)})
        store.down = set()
        return found


async def records(store: RecordStore, table: str) -> dict[str, Cells]:
    """Return the records of a table, as a majority has them."""
    majority = store.replica_count // 2 + 1
    return {key: await store.get(table, key, None, majority) async for key in KeyScan(store, table)}


def _note(file: Path, what: object) -> None:
    with file.open("a") as notes:
        notes.write(json.dumps(what) + "\n")


async def _write(site: Site, seed: int, number: int, updates: Sequence[Update]) -> None:
    """Write updates as one of the processes."""
    store, rng, view = await site.open(), random.Random(seed * 10 + number), site.view
    leases = ShareLeases(store, lease_s=site.lease_s, share_count=2)
    coordinator, notes = ViewCoordinator(store, [view], leases), site.folder / f"{number}.notes"
    cutting = asyncio.create_task(site.cut_off(store, random.Random(seed)))

    async def put(update: Update) -> None:
        await asyncio.sleep(rng.uniform(0, 0.2))
        with suppress(QuorumError):
            await coordinator.put(update, 2)
            _note(notes, {"acknowledged": [update.key, update.column, *update.cell]})

    async def read_own() -> None:
        """Read what was written through a session (Definition 4)."""
        session, key, written = StoreSession(), f"own {number}", list[Update]()
        for at in range(1, 4):
            name = f"{number} {at % 2}"
            cells = {view.key_column: name, "status": rng.choice("xy"), "title": rng.choice(["x", None])}
            updates = [Update(view.base, key, column, StoredCell(value, 2 * at)) for column, value in cells.items()]
            written += updates
            with suppress(QuorumError, ViewLateError):
                await coordinator.put_columns(updates, 2, session)
                found = await coordinator.get_view(view, name, session)
                wanted = {base: row for (place, base), row in view_of(view, written).items() if place == name}
                if found != wanted:
                    _note(notes, {"wrong": f"{name} shows {found}, and should show {wanted}"})

    await asyncio.gather(read_own(), *map(put, updates))
    await coordinator.settle()
    await leases.close()
    cutting.cancel()
    await site.close(store)


def _work(site: Site, seed: int, number: int, updates: Sequence[Update]) -> None:
    asyncio.run(_write(site, seed, number, updates))


def run(seed: int, site: Site) -> list[str]:
    """Have processes write, torment them, and return what is wrong in the end."""
    rng = random.Random(seed)
    count = rng.choice([2, 2, 3])
    updates = [
        replace(update, table=site.view.base)
        for update in random_updates(rng, rng.choice([6, 10, 16]), base_keys=rng.choice([1, 1, 2]))
    ]
    processes = [
        FORKS.Process(target=_work, args=(site, seed, number, updates[number::count])) for number in range(count)
    ]
    # Its files or tables are made once.
    asyncio.run(_make(site))
    for process in processes:
        process.start()
    for _ in range(rng.choice([0, 1, 2])):
        time.sleep(rng.uniform(0, 0.3))
        if rng.random() < 0.5:
            site.torment(rng)
        process = rng.choice(processes)
        assert process.pid is not None
        if not process.is_alive():
            continue
        if rng.random() < 0.5:
            process.kill()
        else:
            # Beyond the time of a lease, or not.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(rng.uniform(0, 1.5 * site.lease_s))
                os.kill(process.pid, signal.SIGCONT)
    for process in processes:
        process.join(_END_S_MAX)
        if process.is_alive():
            process.kill()
            return [f"seed {seed}: the process {process.name} does not end"]
        if process.exitcode not in {0, -signal.SIGKILL}:
            return [f"seed {seed}: the process {process.name} ended with {process.exitcode}"]
    return [f"seed {seed}: {text}" for text in asyncio.run(_judge(site))]


async def _make(site: Site) -> None:
    await site.close(await site.open())


async def _judge(site: Site) -> list[str]:
    """Sweep, and return what is wrong."""
    store, view = await site.open(), site.view
    leases = ShareLeases(store, lease_s=site.lease_s, share_count=2)
    sweeper, wrong = ViewSweeper(store, [view], leases), list[str]()
    # What is at one replica alone comes up, and is swept then.
    for _ in range(2):
        await site.states(store)
        wrong += await _sweep_all(sweeper)
    for state in await site.states(store):
        wanted, (found, unfinished) = view_of(view, updates_in(view, state[view.base])), rows_in(view, state[view.name])
        if found != wanted or unfinished:
            wrong.append(f"the view is {found}, unfinished {unfinished}, and should be {wanted}")
        wrong += _lost(site, state[view.base])
    await leases.close()
    await site.close(store)
    for file in site.folder.glob("*.notes"):
        wrong += [note["wrong"] for note in map(json.loads, file.read_text().splitlines()) if "wrong" in note]
    return wrong


async def _sweep_all(sweeper: ViewSweeper) -> list[str]:
    """Sweep until nothing is to be swept, as all replicas have it; return what is wrong if something always is."""
    sweeps, end = 0, time.monotonic() + _END_S_MAX
    while (swept := await _sweep(sweeper)) != Swept():
        # Replicas are away for a while after they failed, also by a run beside this one.
        is_whole = swept is not None and not swept.replicas_away
        sweeps += is_whole
        if sweeps == _SWEEPS_MAX or time.monotonic() > end:
            return [f"there is always something to sweep: {swept}"]
        await asyncio.sleep(0 if is_whole else 0.1)
    return []


async def _sweep(sweeper: ViewSweeper) -> Swept | None:
    """Sweep once; return None if too few replicas answered."""
    try:
        return await sweeper.sweep()
    except QuorumError:
        return None


def _lost(site: Site, base: dict[str, Cells]) -> list[str]:
    """Return which writes were acknowledged, and neither they nor newer ones are in the base."""
    there = {(update.key, update.column): update.cell for update in updates_in(site.view, base)}
    lost = []
    for file in site.folder.glob("*.notes"):
        for note in map(json.loads, file.read_text().splitlines()):
            if "acknowledged" in note:
                key, column, value, stamp = note["acknowledged"]
                cell = StoredCell(value, stamp)
                if (key, column) not in there or newest(there[key, column], cell) != there[key, column]:
                    lost.append(f"{key} {column} {cell} is lost")
    return lost


def wrong_runs(runs: int, carry_out: Callable[[int], Sequence[str]], jobs: int = 1, first: int = 0) -> int:
    """Carry out runs by their numbers, print what was wrong with each, and return how many were.

    Args:
        jobs: How many runs go on at once.
        first: The number of the first run.
    """
    wrong, since = 0, time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for at, texts in enumerate(pool.map(carry_out, range(first, first + runs)), 1):
            wrong += bool(texts)
            for text in texts:
                print(f"WRONG {text}", flush=True)
            if at % 50 == 0 or at == runs:
                print(f"{first + at} runs, {wrong} wrong, {time.monotonic() - since:.0f} s", flush=True)
    return wrong


def main(seed: int, runs: int) -> int:
    """Carry out runs over files; return how many were wrong."""

    def carry_out(at: int) -> Sequence[str]:
        with tempfile.TemporaryDirectory() as folder:
            return run(seed + at, Sqlite(Path(folder), of_seed(seed + at)))

    return wrong_runs(runs, carry_out)


def begin(name: str, description: str | None, runs: int, main: Callable[[int, int], int]) -> None:
    """Read the command line, carry the runs out, and end the process: with 1 if any was wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.views.versioned.{name}", description=description)
    parser.add_argument("--runs", type=int, default=runs, help=f"how many ({runs})")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next (0)")
    arguments = parser.parse_args()
    sys.exit(bool(main(arguments.seed, arguments.runs)))


if __name__ == "__main__":
    begin("masters", __doc__, 500, main)
