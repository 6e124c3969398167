"""Twip runs end to end, tiny, and finds wrong answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pequod_bench.report.progress import QUIET
from pequod_bench.settings import TwipRunSettings
from pequod_bench.twip.run import NotEmptyError, run
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import Client
from tests.forked import started_server

TINY = ("--users", "200", "--ticks", "4000", "--seed", "3", "--tweet-bytes", "5")


def twip(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["bench", *arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    report: dict[str, object] = json.loads(result.stdout)
    return report


#: What must not depend on the machine, nor on whether there is a wire.
CERTAIN = (
    "ticks",
    "checks",
    "full_checks",
    "subscribes",
    "posts",
    "logouts",
    "rows",
    "timeline_rows",
    "edges",
    "correct",
)


def test_twip_over_the_wire_is_right_and_the_same_as_in_the_engine() -> None:
    wire, alone = twip("twip", *TINY), twip("twip", "--in-process", *TINY)
    assert wire["correct"] is True
    assert {name: wire[name] for name in CERTAIN} == {name: alone[name] for name in CERTAIN}
    assert wire["checks_verified"] == wire["checks"]
    for name in ("seconds", "ticks_per_s", "checks_per_s", "server_cpu_us_per_tick", "server_rss_mib", "load_seconds"):
        assert isinstance(wire[name], float)
    assert alone["server_cpu_us_per_tick"] is None


@pytest.mark.usefixtures("forked_servers")
def test_one_seed_gives_one_run_whatever_the_batches() -> None:
    one, other = twip("twip", *TINY, "--batch", "16", "--window", "1"), twip("twip", *TINY, "--window", "8")
    assert {name: one[name] for name in CERTAIN} == {name: other[name] for name in CERTAIN}


@pytest.mark.usefixtures("forked_servers")
def test_event_loops_change_no_answer() -> None:
    one, other = twip("twip", *TINY), twip("twip", *TINY, "--client-loop", "asyncio", "--server-loop", "asyncio")
    assert {name: one[name] for name in CERTAIN} == {name: other[name] for name in CERTAIN}


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_twip_with_initial_posts_on_an_edge_file(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "edges.tsv.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d\t%d\n" % (i, (i * j) % 97) for i in range(97) for j in range(2, 14))))
    report = twip(
        "twip", "--in-process", "--graph", str(path), "--ticks", "1500", "--initial-posts", "200", "--mode", mode
    )
    assert (report["users"], report["graph"], report["correct"]) == (97, "edges.tsv.gz", True)


@pytest.mark.usefixtures("forked_servers")
def test_a_join_that_computes_something_else_is_found_out(tmp_path: Path) -> None:
    """The planted difference: timelines that also hold what people wrote who are followed by those one follows."""
    path = tmp_path / "wrong.pequod"
    path.write_text(
        "t|<user:8>|<time:10>|<poster:8> = check s|<user>|<friend:8> check s|<friend>|<poster> copy p|<poster>|<time>"
    )
    sizes = ("--users", "60", "--ticks", "1200")
    result = CliRunner().invoke(app, ["bench", "twip", *sizes, "--join-file", str(path), "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["correct"] is False
    assert "is wrong" in report["difference"]
    assert "the answers are wrong: the check at tick" in result.stderr


def test_a_server_that_holds_keys_is_refused() -> None:
    with started_server() as (target, pid):
        settings = TwipRunSettings(users=50, ticks=200, target=target)
        report = run(settings, QUIET)
        assert report.correct
        assert report.server_cpu_us_per_tick is not None, f"process {pid} listens at {target}"
        with pytest.raises(NotEmptyError, match="needs an empty one"):
            run(settings, QUIET)
        with Client(target) as client:
            assert client.count("s|") > 0


@pytest.mark.usefixtures("forked_servers")
def test_the_report_can_be_read_by_people() -> None:
    result = CliRunner().invoke(app, ["bench", "twip", *TINY])
    assert result.exit_code == 0
    for line in ("ticks/s", "server CPU a tick", "correct: ", "equal a computation from scratch"):
        assert line in " ".join(result.stdout.split())


@pytest.mark.parametrize("arguments", [("--in-process", "--target", "here:1"), ("--join-file", "/nowhere/joins")])
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["bench", "twip", *arguments]).exit_code == 2
