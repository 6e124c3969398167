"""How pytest-xdist hands tests out to several processes; imported where it does."""

from __future__ import annotations

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_SPARK: Final = "tests/spark"


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a file in one process, since they share servers, and all of Spark's, which share a session."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        # In the order of the collection, which puts what takes longest first, and not by the number of tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if nodeid.startswith(_SPARK) else nodeid.partition("::")[0]
