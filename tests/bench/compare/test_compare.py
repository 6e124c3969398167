"""`pequod bench compare` measures what it says, leaves out what is not there, and writes its reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from pequod_bench import settings
from pequod_bench.paper import materialisation, newp
from pequod_bench.paper.comparison import (
    Comparison,
    Line,
    LinePoint,
    Machine,
    from_json,
    goals,
    ratios,
    spread,
)
from pequod_bench.paper.measure import Failure, RunOutcome, run_twip, trying
from pequod_bench.paper.report import BEGIN, END, to_html, to_markdown
from pequod_bench.systems.pequod_system import PequodSystem, Timelines
from pequod_bench.systems.system import SystemWorkload
from pequod_bench.workloads.stream import CHECK, POST
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.errors import SettingError


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
    runs = [point["outcomes"] for system in report["twip"] for point in system["points"]]
    assert [len(outcomes) for outcomes in runs] == [1, 1]
    final_rows = {outcome["final_rows"] for outcomes in runs for outcome in outcomes}
    assert len(final_rows) == 1
    assert final_rows.pop() > 0
    assert report["seed"] == 1
    assert "no redis-server" in (out / "compare.md").read_text()
    assert "<svg" in (out / "compare.html").read_text()


#: The quick run in everything but its sizes: each point of a curve starts a server for each line.
TINY = replace(
    settings.QUICK,
    materialisation_users=60,
    articles=60,
    sessions=600,
    active_percents=(1, 100),
    vote_percents=(0, 100),
    latency_users=60,
    rates=(200, 400),
    rate_s=0.4,
    records=300,
    operations=600,
)


@pytest.mark.usefixtures("forked_servers")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("section", settings.SECTIONS)
def test_the_quick_run_is_right_with_whatever_is_installed(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "QUICK", TINY)
    arguments = ["--quick", "--figures", section, "--users", "100", "--ticks", "2000", "--repeat", "1"]
    if section in ("7", "latency", "ycsb"):
        # That each system keeps timelines, answers at a rate and keeps records has tests of its own.
        arguments += ["--systems", "pequod,redis"]
    result = CliRunner().invoke(app, ["bench", "compare", *arguments, "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    fields = {"7": ["twip"], "8": ["materialisation"], "9": ["newp"]}
    fields["latency"] = ["latencies"]
    for field in fields.get(section, [section]):
        assert report[field], field
    assert list(report["section_seconds"]) == [section]
    assert report["failures"] == []
    if section in ("8", "9"):
        check_curves(from_json((tmp_path / "compare.json").read_text()), section)
    page = (tmp_path / "compare.html").read_text()
    assert page.count("<table>") >= len(fields.get(section, [section]))
    for figure in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(figure)
    assert (tmp_path / "compare.md").read_text().count("\n| --- |") >= len(fields.get(section, [section]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--systems", "pequod,oracle"], "there is no system 'oracle'; there are pequod, redis"),
        (["--figures", "7,10"], "--figures: takes 7, 8, 9, latency, ycsb"),
        (["--quick", "--reference"], "take one"),
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", "compare", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def check_curves(found: Comparison, section: str) -> None:
    """See that the curves of a section have all their lines, and that what is at their points is as due."""
    assert found.differences() == []
    lines, titles = {
        "8": (found.materialisation, ["no", "full", "dynamic"]),
        "9": (found.newp, ["separate", "interleaved"]),
    }[section]
    assert [line.title.split()[0] for line in lines] == titles
    for points in zip(*(line.points for line in lines), strict=True):
        (rows,) = {point.outcomes[0].final_rows for point in points}
        assert rows > 0
        if section == "9":
            separate, interleaved = (point.outcomes[0] for point in points)
            assert separate.commands > 2 * interleaved.commands


@pytest.mark.usefixtures("forked_servers")
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

    with trying() as trials:
        outcome = run_twip(Forgetful("f", "f", "", Timelines()), SystemWorkload(stream, 5), trials)
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


def outcome(seconds: float, difference: str = "") -> RunOutcome:
    return RunOutcome(1.0, seconds, seconds / 2, seconds / 4, 50.0, 1000, 10, 500, 400, difference)


@pytest.fixture
def comparison() -> Comparison:
    def line(title: str, *seconds: float) -> Line:
        points = [LinePoint(x, [outcome(s)]) for x, s in zip((0, 50, 100), seconds, strict=True)]
        return Line(title, title, "", "", points)

    def system(name: str, title: str, version: str, tuning: str, *seconds: float) -> Line:
        return Line(name, title, version, tuning, [LinePoint(0, list(map(outcome, seconds)))])

    return Comparison(
        command="pequod bench compare --quick",
        commit="abc",
        started_at="2026-01-01T00:00:00+00:00",
        machine=Machine("Linux", "Some <CPU>", 2, 16.0, "CPython 3.11", 0.5),
        seed=1,
        repetitions=2,
        sizes=dict.fromkeys(settings.SECTIONS, "9 users"),
        skipped={"memcached": "no memcached on PATH"},
        twip=[
            system("pequod", "Pequod", "1", "joins", 1.0, 2.0),
            system("redis", "Redis", "7", "sets", 3.0, 4.0),
            system("postgres", "PostgreSQL", "15", "triggers", 0.5, 0.5),
        ],
        materialisation=[line("no", 1, 8, 9), line("full", 3, 4, 5), line("dynamic", 1, 3, 6)],
        newp=[line("separate", 2, 2, 2), line("interleaved", 1, 1, 3)],
    )


def test_ratios_are_of_runs_side_by_side(comparison: Comparison) -> None:
    pequod, redis, postgres = comparison.twip
    assert ratios(redis, pequod) == spread([3.0, 2.0])
    assert ratios(postgres, pequod) == spread([0.5, 0.25])


def test_goals_are_met_or_missed(comparison: Comparison) -> None:
    redis, postgres, full, no, interleaved = goals(comparison)
    assert (redis.is_met, redis.found) == (True, "2.50 (2.00 to 3.00)")
    assert redis.beside == "server CPU 2.33 times; server 50%"
    assert "at least 1.33 times" in redis.wanted
    assert not postgres.is_met
    assert full.is_met, "the lines cross beyond 90 %"
    assert interleaved.is_met
    assert (no.is_met, no.found) == (False, "behind at 0 %"), "equal is not ahead"


def test_stores_have_a_table(comparison: Comparison) -> None:
    pequod, redis, _ = comparison.twip
    more = replace(
        comparison,
        twip=[],
        materialisation=[],
        newp=[],
        ycsb=[replace(line, points=[LinePoint("E", line.outcomes)]) for line in (pequod, redis)],
        ycsb_operations=1_000,
    )
    text = to_markdown(more)
    assert "| E: 95 % scan, 5 % insert | 750 | 750.0 | 50 | 292 | 1750.0 | 50 |" in text


def test_one_that_fails_is_left_out_and_reported_and_the_others_go_on(comparison: Comparison) -> None:
    calls: list[str] = []

    def run_one(name: str) -> str:
        calls.append(name)
        if calls == ["a", "b", "a", "b"]:
            raise ConnectionResetError("the server went away")
        return name

    with trying() as trials:
        found = trials.interleaved("figure 7", {"A": "a", "B": "b"}, 3, run_one, lambda _: None)
    assert found == {"A": ["a", "a", "a"]}
    assert calls == ["a", "b", "a", "b", "a"]
    assert trials.failures == [Failure("figure 7", "B", "ConnectionResetError: the server went away")]
    failed = replace(comparison, failures=trials.failures)
    for text in (to_markdown(failed), to_html(failed)):
        assert "FAILED: figure 7: B: ConnectionResetError: the server went away" in text


@pytest.mark.usefixtures("forked_servers")
def test_a_server_that_does_not_start_fails_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 && exit\necho no room >&2\nexit 7\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    arguments = ["--systems", "pequod,redis", "--figures", "7", "--users", "60", "--ticks", "600", "--repeat", "1"]
    result = CliRunner().invoke(app, ["bench", "compare", *arguments])
    assert result.exit_code == 1
    assert "figure 7: Redis failed: ServerStartError: redis-server ended at once, with exit code 7" in result.stderr
    assert "| Pequod |" in result.stdout


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


def costing(server_s: float, client_s: float) -> list[RunOutcome]:
    return [replace(outcome(2.0), server_cpu_seconds=server_s, client_cpu_seconds=client_s)]


def test_the_table_says_which_process_is_busiest(comparison: Comparison) -> None:
    pequod, redis, memcached = (
        replace(each, points=[LinePoint(0, costing(*cpu))])
        for each, cpu in zip(comparison.twip, ((1.8, 0.4), (1.2, 0.7), (0.6, 1.9)), strict=True)
    )
    text = to_markdown(replace(comparison, twip=[pequod, redis, memcached]))
    assert "| PostgreSQL | 2.00 | 1.00 | 9.55 | 0.33 | client 95% |" in text


def test_a_comparison_is_read_again_as_it_was_written(comparison: Comparison) -> None:
    assert from_json(comparison.to_json()) == comparison
    for text in ("not JSON", "{}"):
        with pytest.raises(SettingError, match=r"this is no compare\.json of this version"):
            from_json(text)


def test_the_figures_stand_between_the_marks_of_a_file(comparison: Comparison, tmp_path: Path) -> None:
    json_file, readme = tmp_path / "compare.json", tmp_path / "README.md"
    json_file.write_text(comparison.to_json())
    readme.write_text(f"above\n{BEGIN}\nearlier figures\n{END}\nbelow\n")
    arguments = ["bench", "compare", "--from", str(json_file), "--readme", str(readme)]
    for _ in range(2):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.stderr
        text = readme.read_text()
        assert text.startswith(f"above\n{BEGIN}\n    pequod bench compare --quick\n")
        assert "\n#### Figure 7: " in text
        assert text.endswith(f"\n{END}\nbelow\n")
        assert "earlier figures" not in text
        assert text.count("| Redis | 3.50 (3.00 to 4.00) | 2.50 (2.00 to 3.00) | 1.33 |") == 1
    readme.write_text("no marks")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "must have the two lines" in result.stderr
    assert readme.read_text() == "no marks"


def test_a_wrong_answer_stands_in_every_report(comparison: Comparison, tmp_path: Path) -> None:
    line = Line("full", "full", "", "", [LinePoint(x, [outcome(1.0, "a row is missing")]) for x in (0, 50, 100)])
    wrong = replace(comparison, materialisation=[comparison.materialisation[0], line, comparison.materialisation[2]])
    assert len(wrong.differences()) == 3
    assert "WRONG: full: a row is missing" in to_markdown(wrong)
    assert "WRONG: full: a row is missing" in to_html(wrong)
    file = tmp_path / "compare.json"
    file.write_text(wrong.to_json())
    result = CliRunner().invoke(app, ["bench", "compare", "--from", str(file)])
    assert result.exit_code == 1
    assert "WRONG: full: a row is missing" in result.stdout
    assert result.stderr == "pequod: the answers are wrong: full: a row is missing\n"
