"""Hypothesis profiles: `dev` at the desk, `ci` where CI is set; `quick`, `long` and `soak` by HYPOTHESIS_PROFILE.

Also which tests run in one process where pytest-xdist runs several (`make test`).
"""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache

# Before anything imports gRPC: its handlers break children that others fork, as PySpark does to start Java.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Servers and Spark's workers are started by the hundred; without this each would compile what it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from typing import Any, Final

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from pequod.native import core
from tests import drawn_settings, left_out

# The same for the tests: each process of pytest would compile them anew, which takes 9 s.
sys.dont_write_bytecode = False
# The asserts of helpers as well: under `python -O` (`make test-optimised`) those of the tests are to stay, and of what
# pytest rewrites they do, as plain statements.
pytest.register_assert_rewrite("tests.engine", "tests.grammar", "tests.regress", "tests.server")

# Each call of CliRunner would make anew what it meets of Pequod's commands: 8 ms, more than most of them take to run.
typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Of a suite in the background, whose children would inherit it; tests send them Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if transport := os.environ.get("PEQUOD_TRANSPORT"):
    # Servers that tests make by hand have it as those that are started with the variable: `make test-grpcio`.
    from pequod_server import ServerConfig

    ServerConfig.model_fields["transport"].default = transport
    ServerConfig.model_rebuild(force=True)

# A hundred steps that each draw joins and keys are much data, and meant to be.
_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.fixture(scope="module", autouse=True)
def _frozen_heap() -> None:
    """Keep the collector from what exists before a module's tests, the suite's own objects: 0.2 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def default_settings() -> Iterator[None]:
    """Give servers the defaults where the run has drawn settings, for tests of these and of what changes them."""
    with drawn_settings.set_aside():
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
_register("dev", 20, 40)
_register("ci", 20, 50)
_register("long", 60, 50)
_register("soak", 1_000, 100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

#: What takes longest comes first, so that the processes end at about the same time: the seconds of CPU on two cores.
_LONG: Final = (
    "tests/spark",  # 250, for its session in one process
    "tests/server/test_held.py",  # 22, and a minute of waiting
    "tests/freshness",  # 15, and longer waiting
    "tests/packaging/test_extras.py",  # 20
    "tests/engine/test_exactness.py",  # 10
    "tests/backing/chaos",  # 15
    "tests/backing/test_large_commits.py",  # 12
    "tests/backing/test_large_writes.py",  # 12
    "tests/views/test_classes.py",  # 12
    "tests/cluster_faults",  # 20, and as long waiting
    "tests/soak",  # 5, and as long waiting
    "tests/cluster/test_moves_killed.py",  # 10
    "tests/peer/test_failures.py",  # 15, and longer waiting
    "tests/disk/test_tools.py",  # 12
    "tests/peer/test_exports.py",  # 10
    "tests/simulation",  # 30
    "tests/lake",  # 40
    "tests/backing/test_twip.py",  # 15
    "tests/server/test_begun.py",  # 8
    "tests/backing/test_levels_of_databases.py",  # 8
    "tests/bench",  # 30
    "tests/views/chaos",  # 7
    "tests/cli",  # 40
    "tests/workers",  # 45, and as long waiting
    "tests/tpch",  # 10
    "tests/watching",  # 10
)


_DRAW: Final = pytest.StashKey[drawn_settings.Draw]()


def pytest_configure(config: pytest.Config) -> None:
    """Draw the settings of the tests' servers."""
    config.stash[_DRAW] = drawn_settings.draw_of_the_run(is_suite=config.getoption("short"))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the seed of the servers' settings, if they are drawn."""
    draw = config.stash[_DRAW]
    return None if draw.seed is None else f"settings of servers: {draw.told()}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Import each file under the settings of its tests: it may make a ServerConfig."""
    if isinstance(collector, pytest.Module):
        collector.config.stash[_DRAW].turn_to(collector.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run each test under its settings, with its fixtures."""
    item.config.stash[_DRAW].turn_to(item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with each test that failed under drawn settings how to repeat it."""
    report = yield
    draw = item.config.stash[_DRAW]
    if report.failed and draw.is_of(item.nodeid):
        report.sections.append(("servers had settings at random; to repeat it", draw.repeated(item.nodeid)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that the native core was not there, unless it was switched off, and how to repeat a run that failed."""
    if core is None and "PEQUOD_PURE" not in os.environ:
        terminalreporter.write_line("without the native core: python pequod/native/build.py pequod/native", yellow=True)
    draw = config.stash[_DRAW]
    failed = (report.nodeid for kind in ("failed", "error") for report in terminalreporter.getreports(kind))
    if any(draw.is_of(name) for name in failed):
        terminalreporter.write_line(f"servers had settings at random: {draw.told()}", yellow=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run three processes for each core, as many tests wait for servers of their own.

    With more, those that have Spark's tests, which take longest, get less of the cores than they can use.
    """
    return 3 * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests file by file."""
    from tests.scheduling import ByFile

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without a look for garbage: they stay, and to look takes half a second in each process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test` and `make test-long` share out the tests."""
    left_out.add_options(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, and leave the others in their order."""
    left_out.choose(config, items)

    @cache
    def place(file: str) -> int:
        return next((number for number, path in enumerate(_LONG) if file.startswith(path)), len(_LONG))

    items.sort(key=lambda item: place(item.nodeid.partition("::")[0]))
