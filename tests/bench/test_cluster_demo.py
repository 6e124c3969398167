"""`pequod cluster demo`: a cluster that loses servers has exact timelines, and what is missing is said."""

import json

import pytest
from typer.testing import CliRunner

from pequod.cli.app import app


def demo(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["cluster", "demo", *arguments])
    return done.exit_code, done.output


@pytest.mark.usefixtures("forked_servers")
@pytest.mark.timeout(300)
def test_timelines_are_exact_after_a_compute_and_a_home_were_killed() -> None:
    code, text = demo("--users", "60", "--ticks", "900", "--batch", "16", "--json")
    assert code == 0, text
    report = json.loads(text)
    assert report["correct"]
    assert report["reads_failed"] == 0
    assert list(report["kills"]) == ["a third", "two thirds"]
    assert list(report["longest_ms"]) == ["from the start", "after c1", "after h1"]
    assert {one["id"] for one in report["servers"] if one["was_killed"]} == {"c1", "h1"}
    assert report["timelines"] == 42
    assert report["timeline_rows"] > 0


def test_a_cluster_that_loses_a_server_needs_two_of_its_kind() -> None:
    code, text = demo("--computes", "1")
    assert (code, "needs two of its kind" in text) == (2, True)


def test_a_demo_without_etcd_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, text = demo("--etcd", "--users", "20", "--ticks", "20")
    assert (code, "apt-get install etcd-server" in text) == (3, True)
