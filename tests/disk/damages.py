"""Seeded damage of a folder of data: a bit flips, a file is cut off, torn at its end, or gone.

python -m tests.disk.damages --count 200    damage a folder in 200 ways; a start shows all rows, or is refused
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from pequod_server.data.errors import FolderError
from pequod_server.data.folder import Folder
from pequod_server.data.library import RowsError
from pequod_server.data.opening import open_rows

from tests.disk.folders import Base, contents, killed

_LEFT_OUT: Final = ("lock", "LOCK", "LOG")


class Damage(NamedTuple):
    """One damage, in words."""

    kind: str
    file: str
    at: int


def written(path: Path) -> Base:
    """Write a folder with files of rows and a log, as a kill leaves it; return its rows."""
    random, base = Random(7), Base()
    with Folder(path) as folder:
        rows = open_rows(folder)
        for position in range(1, 1200):
            key = b"p|%03d|%d" % (random.randrange(300), position % 3)
            value = random.randbytes(9000) + bytes(30_000)
            rows.write({key: value}, position)
            base[key] = value
            folder.note.written = position
            if position % 100 == 0:
                rows.sync()
                folder.note.synced = position
        killed(path, path.with_suffix(".killed"))
        rows.close()
    shutil.rmtree(path)
    path.with_suffix(".killed").rename(path)
    return base


def damage(path: Path, random: Random) -> Damage:
    """Damage one file of a folder."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name not in _LEFT_OUT]
    file = random.choice(files)
    data = bytearray(file.read_bytes())
    kind, at = random.choice(["flip", "cut", "tear", "gone"]), random.randrange(max(1, len(data)))
    match kind:
        case "flip" if data:
            data[at] ^= 1 << random.randrange(8)
            file.write_bytes(data)
        case "tear":
            at = max(0, len(data) - random.randrange(1, 40))
            file.write_bytes(data[:at])
        case "gone":
            file.unlink()
        case _:
            file.write_bytes(data[:at])
    return Damage(kind, str(file.relative_to(path)), at)


def outcome(path: Path, base: Base) -> str:
    """Start from a folder; return why it is refused, empty if all rows are there.

    Raises:
        AssertionError: It is not refused, and rows are missing or old.
    """
    try:
        found = contents(path)
    except (FolderError, RowsError) as error:
        return str(error)
    assert found == base, f"the start hides that {len(base.items() - found.items())} rows are missing or old"
    return ""


def main() -> None:
    """Damage a folder in many ways."""
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    refused = 0
    with TemporaryDirectory() as scratch:
        base = written(Path(scratch) / "whole")
        for seed in range(chosen.seed, chosen.seed + chosen.count):
            path = Path(scratch) / str(seed)
            shutil.copytree(Path(scratch) / "whole", path)
            what = damage(path, Random(seed))
            try:
                refused += bool(outcome(path, base))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {what}: {error}") from None
            shutil.rmtree(path)
    print(f"{chosen.count} damages: {refused} refused, {chosen.count - refused} harmless, none hidden")


if __name__ == "__main__":
    main()
