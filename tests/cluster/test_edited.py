"""Changes of a map in a file keep what its operator wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_server.cluster.edited import edited
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.cluster.document import TEMPLATE, read, written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, Placement
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState

MINE = """\
# The cluster of the site; ask Ann before you change it.
cluster = "twip"  # never another name
version = 7

joins = '''
t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
'''

# servers first, as we like it
[[servers]]
id = "h1"           # rack 4
address = "10.0.0.1:7744"
roles = ["home"]
group = "a"

[[servers]]
# the small one
id = "c1"
address = "10.0.0.3:7744"
roles = ["compute"]
weight = 0.5

# who owns what
[[home_ranges]]
first = "p|"        # posts
last = "p}"
group = "a"

[[home_ranges]]
first = "s|"        # subscriptions
last = "s}"
group = "a"
"""
REMARKS = ("# The cluster of the site", "# never another name", "# servers first", "# rack 4", "# the small one")


def command(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["cluster", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_keep_the_remarks_and_the_order_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    place = f"static:{file}"
    file.write_text(MINE)
    command("placement", place, "top|", "--level", "0")
    command("add-home", place, "a", "u")
    text = file.read_text()
    for remark in (*REMARKS, "# who owns what", "# posts", "# subscriptions"):
        assert remark in text, remark
    assert text.index("servers") < text.index("home_ranges")
    assert "version = 9\n" in text
    state = read(text)
    assert state.map.placements == (Placement(b"top|", 0),)
    assert [(one.first, one.group) for one in state.map.home_ranges] == [(b"p|", "a"), (b"s|", "a"), (b"u|", "a")]
    # What is not touched is the same to the byte.
    kept = MINE[MINE.index("joins") : MINE.index("# who owns what")]
    assert kept in text


def test_the_template_stays_a_file_with_remarks(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    command("init", f"static:{file}")
    command("placement", f"static:{file}", "top|", "--level", "0")
    text = file.read_text()
    assert [line for line in TEMPLATE.splitlines() if line.startswith("#")] == [
        line for line in text.splitlines() if line.startswith("#")
    ]


_GROUPS = st.sampled_from(["a", "b"])
_ENDS = st.sampled_from([b"a|", b"c|", b"p|", b"s\\\xff|", b"u|"])


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    bounds = sorted(draw(st.sets(_ENDS, min_size=1)))
    ends = [*bounds[1:], None]
    ranges = [
        HomeRange(first, last, draw(_GROUPS), draw(st.sampled_from(["", "c"])))
        for first, last in zip(bounds, ends, strict=True)
        if draw(st.booleans())
    ]
    placements = [Placement(prefix, draw(st.integers(0, 2))) for prefix in sorted(draw(st.sets(_ENDS)))]
    roles = st.sampled_from([{ServerRole.HOME}, {ServerRole.COMPUTE}, set(ServerRole)])
    servers = [
        ServerEntry(
            name,
            f"{name}:1",
            frozenset(has := draw(roles)),
            "a" if ServerRole.HOME in has else "",
            draw(st.sampled_from([1.0, 2.5])),
            draw(st.sampled_from(["", "west"])),
            draw(st.sampled_from(list(ServerState))),
        )
        for name in sorted(draw(st.sets(st.sampled_from(["h1", "h2", "c1"]))))
    ]
    joins = draw(st.sampled_from(["", "a|<x> = copy b|<x>;", "a|<x> = copy b|<x>;\n\\n = 'x';\n"]))
    return ClusterState.of(
        ClusterMap("twip", draw(st.integers(1, 9)), joins, tuple(placements), tuple(ranges)), servers
    )


@given(before=states(), after=states())
def test_an_edited_text_says_the_new_state(before: ClusterState, after: ClusterState) -> None:
    text = edited(written(before), after)
    assert read(text) == after
    assert read(edited(text, before)) == before


@pytest.mark.parametrize("remark", REMARKS)
def test_a_state_that_is_the_same_leaves_the_text_alone(remark: str) -> None:
    assert edited(MINE, read(MINE)) == MINE
    assert remark in MINE
