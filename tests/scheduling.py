"""How pytest-xdist hands tests out to several processes; imported where it does."""

from __future__ import annotations

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Spark's tests share a session.
_SPARK: Final = "tests/spark"


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a file in one process, since they share servers, and all of Spark's, for its session.

    To start a session and to warm it up takes twenty seconds of CPU, and other tests can use these better: Spark's come
    first, and run several processes themselves, so that they end before the others do.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        # In the order of the collection, which puts what takes longest first, and not by the number of tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if nodeid.startswith(f"{_SPARK}/") else nodeid.partition("::")[0]
