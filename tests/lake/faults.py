"""A lake whose workers and uploaders are killed at named steps, whose disk is full, whose clock jumps, whose files are
cut short or gone; compared.

    python -m tests.lake.faults --runs 200 --seed 0

Each run has a seed. A child process takes uploads and does steps, and kills itself with SIGKILL at the n-th time that
it passes a named step. What it acknowledged it wrote to a log before it went on. Then the lake is opened again: every
acknowledged upload is there as a whole, one that was under way is there as a whole or not at all, and at every level
the lake equals a replay of the uploads in the order of their SCUs.

A child may also cut files short or take them away, and goes on. Then each query either equals the replay or fails and
names such a file, `verify` names each of them, and when the files are back nothing is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import tempfile
import threading
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from pequod_lake import IngestLimits, Lake, LakeError, LakeSchema, MergePolicy, StageLimits
from pequod_lake.clock import Clock, Stamp, machine_clock
from pequod_lake.errors import LakeCorruptError

from tests.lake.replay import SCHEMA, Call, check_snapshot, fill, random_calls

POINTS: Final = [
    "ingest.file",
    "ingest.written",
    "ingest.committed",
    *(
        f"{step}.{point}"
        for step in ("remap", "sort", "merge", "delta", "authority")
        for point in ("claimed", "file", "written")
    ),
    *(f"{step}.replaced" for step in ("remap", "sort", "merge", "delta", "authority")),
    "remap.ids",
]
#: Uploads of one child.
_UPLOADS: Final = 12
#: Children have nothing open of a lake: a process that starts them has closed it.
_FORK: Final = get_context("fork")
FAULTS: Final = ("kill", "kill", "kill", "disk", "workers", "clock", "file", "file")


def calls_of(seed: int, name: str) -> list[Call]:
    """Return the calls of an upload, which follow from its name."""
    return random_calls(random.Random(f"{seed} {name}"), LakeSchema.parse(SCHEMA))


def child(folder: Path, seed: int, number: int, fault: str, log: Path) -> None:
    """Take uploads and do steps until the fault ends it, or all is done."""
    dice = random.Random(f"{seed} {number}")
    point, passes = dice.choice(POINTS), dice.randint(1, 6)
    left = {point: passes if fault == "kill" else 0}

    def at_point(name: str) -> None:
        if left.get(name, 0) > 0:
            left[name] -= 1
            if left[name] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    clock = jumping(dice) if fault == "clock" else machine_clock
    policy = MergePolicy(
        fan_in=2,
        authority_ratio=0.5,
        authority_after_s=dice.choice([1e9, 0.0]),
        delta_ratio=dice.choice([0.125, 2.0]),
    )
    with Lake(folder, clock=clock, at_point=at_point) as lake, lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        if fault == "disk":
            # Writes beyond this size of a file fail, as on a full disk: now at a file of rows, now in the catalog.
            resource.setrlimit(resource.RLIMIT_FSIZE, (size := dice.choice([1500, 2000, 100_000, 200_000]), size))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        # With leases that end at once, workers do the same steps and meet at the catalog.
        lease_s = 0.0 if fault == "workers" else 30.0
        limits = StageLimits(range_rows=dice.choice([4, 1_000_000]), whole_ratio=dice.choice([0.25, 9.0]))
        workers = [lake.worker(policy, limits, lease_s=lease_s) for _ in range(3 if fault == "workers" else 1)]
        stop = threading.Event()
        threads = [threading.Thread(target=worker.run, args=(stop,), daemon=True) for worker in workers[1:]]
        for thread in threads:
            thread.start()
        with log.open("a") as acknowledged:
            for at in range(_UPLOADS):
                name = f"{number}-{at}"
                try:
                    scu = ingestor.take(fill(ingestor.upload(name), calls_of(seed, name))).scu
                    acknowledged.write(json.dumps([name, scu]) + "\n")
                    acknowledged.flush()
                    if fault == "file" and dice.random() < 0.3:
                        damage(lake, log.parent / f"kept-{seed}", dice)
                    for _ in range(dice.randint(0, 3)):
                        workers[0].step()
                except LakeCorruptError as error:
                    assert is_damaged(folder, log.parent / f"kept-{seed}", error.path)
                except LakeError:
                    assert fault == "disk"
        stop.set()
        for thread in threads:
            thread.join()


def damage(lake: Lake, kept: Path, dice: random.Random) -> None:
    """Cut a file of the lake short, or take it away; what it was is kept in a folder."""
    kept.mkdir(exist_ok=True)
    files = [file.path for run in lake.catalog.snapshot().runs for file in run.files]
    path = dice.choice(files) if files else ""
    whole = kept / path.replace("/", "+")
    try:
        (kept / f"claim.{whole.name}").touch(exist_ok=False)
        shutil.copy(lake.folder / path, whole)
    except OSError:
        # Another child has damaged it, or there is none.
        return
    if dice.random() < 0.5:
        (lake.folder / path).rename(kept / f"gone.{whole.name}")
    else:
        os.truncate(lake.folder / path, dice.randrange(whole.stat().st_size))


def damaged_files(kept: Path) -> dict[str, Path]:
    """Return the paths of files that were damaged, each with where it is kept."""
    return {one.name.replace("+", "/"): one for one in kept.glob("data+*")}


def is_damaged(folder: Path, kept: Path, path: str) -> bool:
    """Return whether a file was damaged, or is another name of one that was."""
    damaged = damaged_files(kept)
    file = folder / path
    return path in damaged or any(
        file.exists() and (folder / one).exists() and file.samefile(folder / one) for one in damaged
    )


def look_at_damage(folder: Path, kept: Path, uploads: list[list[Call]], dice: random.Random) -> None:
    """See that no damaged file is read as rows, and that each is named; then put all back as they were."""
    with Lake(folder) as lake:
        for level in ("authority", "newest"):
            with lake.snapshot(level) as snapshot:
                try:
                    check_snapshot(snapshot, uploads, dice)
                except LakeCorruptError as error:
                    assert is_damaged(folder, kept, error.path), error
        said = " ".join(lake.verify())
        for file in (file for run in lake.catalog.snapshot().runs for file in run.files):
            assert (file.path in said) == is_damaged(folder, kept, file.path), (file, said)
    for path, whole in damaged_files(kept).items():
        gone = kept / f"gone.{whole.name}"
        if gone.exists():
            gone.rename(folder / path)
            continue
        # In place, as the file may have other names.
        with (folder / path).open("r+b") as cut:
            cut.write(whole.read_bytes())


def jumping(dice: random.Random) -> Clock:
    """Return a clock whose wall time jumps."""

    def now() -> Stamp:
        true = machine_clock()
        return Stamp(true.boot, true.elapsed_s, true.wall_us + dice.randint(-(10**12), 10**12))

    return now


def run(root: Path, template: Path, seed: int) -> None:
    """Do one run: some children, one after the other or at once, then the comparison."""
    dice = random.Random(seed)
    folder, log = root / f"lake-{seed}", root / f"log-{seed}"
    shutil.copytree(template, folder)
    faults = [dice.choice(FAULTS) for _ in range(dice.randint(1, 3))]
    logs = [Path(f"{log}-{number}") for number in range(len(faults))]
    children = [
        _FORK.Process(target=child, args=(folder, seed, number, fault, child_log))
        for number, (fault, child_log) in enumerate(zip(faults, logs, strict=True))
    ]
    for process in children:
        process.start()
        if dice.random() < 0.5:
            process.join()
    for process, fault in zip(children, faults, strict=True):
        process.join(300)
        assert process.exitcode in ({0, -signal.SIGKILL} if fault == "kill" else {0}), (seed, fault)
    acknowledged = dict(json.loads(line) for path in logs if path.exists() for line in path.read_text().splitlines())
    kept = root / f"kept-{seed}"
    compare(folder, seed, acknowledged, kept, dice)
    shutil.rmtree(kept, ignore_errors=True)
    shutil.rmtree(folder)


def compare(folder: Path, seed: int, acknowledged: dict[str, int], kept: Path, dice: random.Random) -> None:
    """Compare the lake with a replay at every freshness, before and after its stages are done and files swept."""
    with Lake(folder) as lake:
        taken = dict(lake.catalog.database.connection.execute("SELECT upload, scu FROM lake_upload").fetchall())
        assert acknowledged.items() <= taken.items(), (seed, acknowledged.items() - taken.items())
        with lake.snapshot() as snapshot:
            newest = snapshot.scu
        # An SCU of one process has uploads of that process only, in the order of their numbers.
        by_scu: list[list[str]] = [[] for _ in range(newest)]
        for name in sorted(taken, key=lambda name: [int(part) for part in name.split("-")]):
            by_scu[taken[name] - 1].append(name)
        uploads = [[call for name in names for call in calls_of(seed, name)] for names in by_scu]
        if damaged_files(kept):
            look_at_damage(folder, kept, uploads, dice)
        for level in ["authority", "newest", f"scu:{dice.randint(0, newest)}", "0s"]:
            with lake.snapshot(level) as snapshot:
                check_snapshot(snapshot, uploads, dice)
        for scu in {dice.randint(0, newest) for _ in range(2)}:
            with lake.snapshot_at(scu=scu) as snapshot:
                check_snapshot(snapshot, uploads)
        worker = lake.worker(MergePolicy(fan_in=2))
        worker.compact()
        worker.close()
        lake.expire(0.0)
        assert lake.catalog.orphans() == []
        assert lake.verify() == []
        with lake.snapshot("authority") as snapshot:
            assert snapshot.scu == newest
            check_snapshot(snapshot, uploads, dice)
        there = {path.relative_to(folder).as_posix() for path in (folder / "data").rglob("*.parquet")}
        assert there == {file.path for one in lake.catalog.snapshot().runs for file in one.files}


def main() -> None:
    parser = argparse.ArgumentParser(description="Torment a lake, and compare it with a replay.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        root = Path(place)
        Lake.create(root / "template", SCHEMA).close()
        for seed in range(options.seed, options.seed + options.runs):
            run(root, root / "template", seed)
            done = seed - options.seed + 1
            if done % 10 == 0:
                print(f"{done} of {options.runs} runs equal", flush=True)
        print(f"{options.runs} runs from seed {options.seed}: all equal")


if __name__ == "__main__":
    main()
