"""A server whose building of joins a test holds: apart from the tests, since each fork would import what they do."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from pequod.engine.reads.building import Building
from tests.forked import run_serve

#: The variable that names the folder in which a file with the name of a compute holds its building of joins.
HOLDS = "HOLDS_OF_THE_TEST"


def run_held(says: Connection, flags: tuple[str, ...], variables: dict[str, str], folder: str) -> None:
    """Run a server that builds no join to its end while a file is there."""
    build = Building.build_some
    hold = Path(variables[HOLDS]) / flags[flags.index("--cluster-id") + 1]

    def build_some(self: Building, now: float) -> bool:
        return build(self, now) or hold.exists()

    Building.build_some = build_some  # type: ignore[method-assign]
    run_serve(says, flags, variables, folder)
