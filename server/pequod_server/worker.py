"""One worker: a process of a server that has several, as its supervisor tells it what it is.

    supervisor -> worker.json -> Worker(id, door, ..)     in the runtime folder, which only the server's user can open

>>> Worker.read(Worker("w1", "unix:/run/w1.sock").written()).id
'w1'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

#: How long calls of the home wait for one that is away: the supervisor starts it again.
HOME_BACK_S: Final = 30.0
#: The worker that has the base data.
HOME_ID: Final = "w0"


def shown_file(folder: Path, name: str) -> Path:
    """Return the file in which a worker shows its map, in the runtime folder; there is none while it is away."""
    return folder / f"{name}.shown"


def heat_file(folder: Path, name: str) -> Path:
    """Return the file in which a worker says what it works for, in the runtime folder."""
    return folder / f"{name}.heat"


@dataclass(frozen=True, slots=True)
class Worker:
    """The place of one worker among the workers of a machine."""

    #: Its name in the map of the workers: ``w0`` is the home.
    id: str
    #: The unix socket where the other workers reach it.
    door: str
    #: HOST:PORT where clients reach it alone; empty: they reach it at the address of all workers.
    own_listen: str = ""
    #: The token of the workers' calls to each other, where there is an access file.
    token: str = field(default="", repr=False)
    #: The text of the joins of all workers.
    joins: str = ""
    #: The unix socket of its metrics and its health, if the settings ask for them.
    figures: str = ""
    #: Where clients reach each worker, by id.
    shown: Mapping[str, str] = field(default_factory=dict)

    def written(self) -> str:
        """Return it as text, for `read`."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> Worker:
        """Return what a text says."""
        return Worker(**json.loads(text))
