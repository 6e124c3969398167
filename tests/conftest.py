"""Hypothesis profiles: `dev` at the desk, `ci` where CI is set; `quick` and `soak` by HYPOTHESIS_PROFILE.

Also which tests run in one process where pytest-xdist runs several (`make test`).
"""

import os
import signal
from collections.abc import Iterator
from unittest.mock import patch

# Before anything imports gRPC: its handlers break children that others fork, as PySpark does to start Java.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Servers and Spark's workers are started by the hundred; without this each would compile what it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from pequod.engine.joins import timeline

# The asserts of helpers as well: under `python -O` (`make test-optimised`) those of the tests are to stay, and of what
# pytest rewrites they do, as plain statements.
pytest.register_assert_rewrite("tests.engine", "tests.grammar", "tests.regress", "tests.server")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Of a suite in the background, whose children would inherit it; tests send them Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A hundred steps that each draw joins and keys are much data, and meant to be.
_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.fixture(params=[True, False], ids=["timelines", "loops"])
def kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile joins with the timeline's kernel, and then without it: what the engine answers is the same."""
    if not request.param and timeline.__file__.endswith(".so"):
        pytest.skip("a compiled engine's kernel cannot be switched off")
    with patch.object(timeline, "is_on", request.param):
        yield


def _register(name: str, examples: int, steps: int) -> None:
    settings.register_profile(
        name,
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=_SLOW_IS_FINE,
        print_blob=True,
    )


_register("quick", 10, 20)
_register("dev", 50, 40)
_register("ci", 150, 50)
_register("soak", 1_000, 100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

_SPARK: Final = "tests/spark"


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a file in one process, since they share servers, and all of Spark's, which share a session."""

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if nodeid.startswith(_SPARK) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Hand out tests so; `make test` runs several processes."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put Spark's tests first: they take longest, and the other processes have the rest meanwhile."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))
