"""Where mutations go: the files of the native core, and those of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.mutations import of_cpp, of_python
from tests.mutations.mutation import Mutation

ROOT: Final = Path(__file__).parents[2]
#: A judge of the engine's answers, which nothing judges.
_JUDGES: Final = frozenset({"testing.py", "naive_records.py"})


class Place(NamedTuple):
    """A mutation of a file."""

    #: Relative to its part.
    file: str
    #: The file as it is, and as it would be.
    right: str
    wrong: str
    #: The file, the line, and what it was and would be.
    described: str
    #: The line, from 1.
    line: int


class Part(NamedTuple):
    """A part of Pequod that is mutated."""

    name: str
    folder: Path
    suffix: str
    mutations_of: Callable[[str], Iterable[Mutation]]
    #: Files of tests that find most, the quickest first, and folders of those that are asked for what is left.
    quick: tuple[str, ...]
    more: tuple[str, ...]

    def chosen(self, count: int, seed: int) -> list[Place]:
        """Return some places at random, each as likely as any other."""
        found = list[tuple[str, str, Mutation]]()
        for path in sorted((ROOT / self.folder).rglob(f"*{self.suffix}")):
            if path.name in _JUDGES:
                continue
            text, file = path.read_text(), str(path.relative_to(ROOT / self.folder))
            found += [(file, text, mutation) for mutation in self.mutations_of(text)]
        return [
            Place(file, text, mutation.applied(text), f"{file}:{mutation.described(text)}", mutation.line(text))
            for file, text, mutation in Random(seed).sample(found, min(count, len(found)))
        ]


_MORE: Final = (
    "tests/engine",
    "tests/grammar",
    "tests/commands",
    "tests/conformance",
    "tests/once",
    "tests/wire",
    "tests/client",
    "tests/server",
    "tests/peer",
    "tests/workers",
    "tests/watching",
    "tests/disk",
    "tests/freshness",
    "tests/simulation",
    "tests/gateway",
    "tests/cluster_client",
    "tests/backing",
)
NATIVE: Final = Part(
    "native",
    Path("pequod/native"),
    ".cpp",
    of_cpp.mutations_of,
    (
        "tests/native",
        "tests/regress",
        "tests/client/test_columns.py",
        "tests/engine/test_searched.py",
        "tests/engine/test_whole_values.py",
        "tests/engine/test_expiry.py",
        "tests/once/test_batches.py",
        "tests/workers/test_relay.py",
        "tests/workers/test_relay_ends.py",
    ),
    _MORE,
)
ENGINE: Final = Part(
    "engine",
    Path("pequod/engine"),
    ".py",
    of_python.mutations_of,
    # Of the core's tests those that compare it with the engine without it.
    ("tests/engine", "tests/regress", "tests/native/test_beside.py", "tests/native/test_quick.py"),
    _MORE,
)
PARTS: Final = {part.name: part for part in (NATIVE, ENGINE)}
