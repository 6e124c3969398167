"""`pequod bench compare` measures what it says, leaves out what is not there, and writes its reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from pequod_bench.compare import materialisation, newp, study
from pequod_bench.compare.comparison import Comparison, Line, Machine, Point, SystemResult, ratios, spread
from pequod_bench.compare.markdown import to_markdown
from pequod_bench.compare.measure import Outcome, client_loop, run_twip
from pequod_bench.compare.page import to_html
from pequod_bench.compare.pequod_system import PequodSystem
from pequod_bench.compare.system import Workload
from pequod_bench.compare.tables import verdicts
from pequod_bench.progress import QUIET
from pequod_bench.stream import CHECK, POST
from typer.testing import CliRunner

from pequod.cli.app import app


def test_compare_runs_what_is_installed_and_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "report"
    arguments = ["--systems", "pequod,redis,client-pequod", "--figures", "7", "--users", "100", "--ticks", "900"]
    result = CliRunner().invoke(app, ["bench", "compare", *arguments, "--repeat", "1", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.stderr
    assert "redis is left out: no redis-server on PATH; install it with: apt-get install redis-server" in result.stderr
    report = json.loads(result.stdout)
    assert report == json.loads((out / "compare.json").read_text())
    assert [system["name"] for system in report["twip"]] == ["pequod", "client-pequod"]
    assert [len(system["outcomes"]) for system in report["twip"]] == [1, 1]
    final_rows = {outcome["final_rows"] for system in report["twip"] for outcome in system["outcomes"]}
    assert len(final_rows) == 1
    assert final_rows.pop() > 0
    assert report["seed"] == 1
    assert "no redis-server" in (out / "compare.md").read_text()
    assert "<svg" in (out / "compare.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--systems", "pequod,oracle"], "there is no system 'oracle'; there are pequod, redis"),
        (["--figures", "7,10"], "--figures takes 7, 8 and 9"),
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", "compare", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_both_curves_are_measured_and_right() -> None:
    scale = replace(
        study.QUICK,
        materialisation_users=40,
        articles=20,
        sessions=300,
        active_percents=(50,),
        vote_percents=(50,),
    )
    found = study.run(study.Settings(scale, [], frozenset({8, 9})), QUIET)
    assert found.differences() == []
    assert [line.title.split()[0] for line in found.materialisation] == ["no", "full", "dynamic"]
    assert [line.title for line in found.newp] == ["separate", "interleaved"]
    for lines in (found.materialisation, found.newp):
        (rows,) = {line.points[0].outcomes[0].final_rows for line in lines}
        assert rows > 0
    separate, interleaved = (line.points[0].outcomes[0] for line in found.newp)
    assert separate.commands > 2 * interleaved.commands


def test_wrong_timelines_are_found() -> None:
    """The planted difference: nobody follows the first who posts."""
    stream = materialisation.make_stream("synthetic", 40, 100, seed=1)
    graph = stream.graph
    is_kept = graph.posters != int(stream.users[stream.kinds == POST][0])
    smaller = replace(graph, users=graph.users[is_kept], posters=graph.posters[is_kept])
    session = replace(stream, graph=smaller)

    class Forgetful(PequodSystem):
        def session(self, server, workload):  # type: ignore[no-untyped-def]
            return super().session(server, replace(workload, stream=session))

    with client_loop() as loop:
        outcome = run_twip(Forgetful("f", "f", "dynamic", ""), Workload(stream, 5), loop)
    assert "the final timeline of user" in outcome.difference


def test_posts_and_graph_do_not_depend_on_who_is_active() -> None:
    few, all_ = (materialisation.make_stream("synthetic", 90, percent, seed=2) for percent in (10, 100))
    few._check()
    all_._check()
    assert few.graph.edge_count == all_.graph.edge_count
    assert sorted(few.users[few.kinds == POST].tolist()) == sorted(all_.users[all_.kinds == POST].tolist())
    assert few.count(POST) == 50
    assert (few.count(CHECK), all_.count(CHECK)) == (500, 5_000)
    assert (len(few.active), len(all_.active)) == (9, 90)
    assert set(few.active.tolist()) < set(all_.active.tolist())
    checks = np.bincount(all_.users[all_.kinds == CHECK])
    assert checks.max() - checks.min() <= 1


def test_newp_draws_votes_at_the_rate_asked_for_and_one_population() -> None:
    never, half = (newp.make_sessions(50, 4_000, percent, seed=3) for percent in (0, 50))
    assert (never.session_voters >= 0).sum() == 0
    assert (half.session_voters >= 0).mean() == pytest.approx(0.5, abs=0.05)
    assert np.array_equal(never.voters, half.voters)
    assert np.array_equal(never.read_articles, half.read_articles)


def test_a_page_holds_what_was_written_for_it() -> None:
    ids = np.array
    sessions = newp.Sessions(
        authors=ids([0, 1]),
        comment_articles=ids([0]),
        commenters=ids([1]),
        vote_articles=ids([1, 1]),
        voters=ids([0, 0]),
        read_articles=ids([1, 0]),
        session_voters=ids([1, -1]),
        session_commenters=ids([-1, 0]),
    )
    first, second = newp.expected_pages(sessions)
    assert (first.rank, second.rank) == (0, 2), "a voter votes once"
    assert first.comments == {(b"00000000", b"00000001"): newp.text(0), (b"00000001", b"00000000"): newp.text(1)}
    assert first.karma == {b"00000001": 2}, "author 1 has two votes, author 0 none"


def outcome(seconds: float, difference: str = "") -> Outcome:
    return Outcome(1.0, seconds, seconds / 2, seconds / 4, 50.0, 1000, 10, 500, 400, difference)


@pytest.fixture
def comparison() -> Comparison:
    def line(title: str, *seconds: float) -> Line:
        return Line(title, [Point(x, [outcome(s)]) for x, s in zip((0, 50, 100), seconds, strict=True)])

    return Comparison(
        command="pequod bench compare --quick",
        commit="abc",
        started_at="2026-01-01T00:00:00+00:00",
        machine=Machine("Linux", "Some <CPU>", 2, 16.0, "CPython 3.11", 0.5),
        seed=1,
        repetitions=2,
        twip_size="9 users",
        materialisation_size="9 users",
        newp_size="9 articles",
        skipped={"memcached": "no memcached on PATH"},
        twip=[
            SystemResult("pequod", "Pequod", "1", "joins", [outcome(1.0), outcome(2.0)]),
            SystemResult("redis", "Redis", "7", "sets", [outcome(3.0), outcome(4.0)]),
            SystemResult("postgres", "PostgreSQL", "15", "triggers", [outcome(0.5), outcome(0.5)]),
        ],
        materialisation=[line("no", 1, 8, 9), line("full", 3, 4, 5), line("dynamic", 1, 3, 6)],
        newp=[line("separate", 2, 2, 2), line("interleaved", 1, 1, 3)],
    )


def test_ratios_are_of_runs_side_by_side(comparison: Comparison) -> None:
    pequod, redis, postgres = comparison.twip
    assert ratios(redis, pequod) == spread([3.0, 2.0])
    assert ratios(postgres, pequod) == spread([0.5, 0.25])


def test_the_verdicts_say_who_wins(comparison: Comparison) -> None:
    redis, postgres, full, interleaved = verdicts(comparison)
    assert redis.startswith("Pequod is 2.50 times faster than Redis. CPU of the servers: 0.75 s and 1.75 s.")
    assert redis.endswith("The paper's ratio is 1.33.")
    assert postgres.startswith("Pequod is 2.67 times slower than PostgreSQL")
    assert "at 0 %, 50 % (of 3 points measured)" in full
    assert "at 0 %, 50 % (of 3 points measured)" in interleaved


def test_the_markdown_report_has_a_table_for_each_figure(comparison: Comparison) -> None:
    text = to_markdown(comparison)
    assert "| Redis | 3.50 (3.00 to 4.00) | 2.50 (2.00 to 3.00) | 1.33 |" in text
    assert "| 50 % | 8.00 [4.00] | 4.00 [2.00] | 3.00 [1.50] |" in text
    assert "memcached: no memcached on PATH" in text
    assert "WRONG" not in text


def test_the_html_report_needs_no_other_file_and_its_figures_are_whole(comparison: Comparison) -> None:
    text = to_html(comparison)
    assert "Some &lt;CPU&gt;" in text
    assert not re.search(r"<(script|link|img)\b", text)
    figures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(figures) == 3
    for figure in figures:
        ET.fromstring(figure)
    assert ">Redis</text>" in figures[0]


def test_a_wrong_answer_stands_in_every_report(comparison: Comparison) -> None:
    line = Line("full", [Point(x, [outcome(1.0, "a row is missing")]) for x in (0, 50, 100)])
    wrong = replace(comparison, materialisation=[comparison.materialisation[0], line, comparison.materialisation[2]])
    assert len(wrong.differences()) == 3
    assert "WRONG: full: a row is missing" in to_markdown(wrong)
    assert "WRONG: full: a row is missing" in to_html(wrong)
