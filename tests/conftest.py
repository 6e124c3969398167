"""Hypothesis profiles: `dev` at the desk, `ci` where CI is set, `soak` by HYPOTHESIS_PROFILE (see `make soak`).

Also which tests run in one process where pytest-xdist runs several (`make test`).
"""

import os

# Before anything imports gRPC: its handlers break children that others fork, as PySpark does to start Java.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A hundred steps that each draw joins and keys are much data, and meant to be.
_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _register(name: str, examples: int, steps: int) -> None:
    settings.register_profile(
        name,
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=_SLOW_IS_FINE,
        print_blob=True,
    )


_register("dev", 50, 40)
_register("ci", 150, 50)
_register("soak", 20_000, 100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

_SPARK = Path(__file__).parent / "spark"


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one process, since they share servers, and all of Spark's, which share a session.

    Spark's come first: they take longest, and the other processes have the rest meanwhile.
    """
    items.sort(key=lambda item: _SPARK not in item.path.parents)
    for item in items:
        group = "spark" if _SPARK in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
