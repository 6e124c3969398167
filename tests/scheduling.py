"""How pytest-xdist hands tests out to several processes; imported where it does."""

from __future__ import annotations

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Spark's tests in two parts of about the same length.
_SPARK: Final = ("tests/spark/test_backfill", "tests/spark")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a file in one process, since they share servers, and each part of Spark's, for its session.

    To start a session takes fifteen seconds. In one process, Spark's tests would end long after all others.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        # In the order of the collection, which puts what takes longest first, and not by the number of tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return next((part for part in _SPARK if nodeid.startswith(part)), nodeid.partition("::")[0])
