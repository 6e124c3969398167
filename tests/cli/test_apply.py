"""`pequod join apply`: the joins of a file become those of a server, and it prints what changes."""

import json
from pathlib import Path

from tests.cli.conftest import Pequod

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


def test_a_file_of_joins_is_applied_as_a_whole(pequod: Pequod, tmp_path: Path) -> None:
    file = tmp_path / "joins.pequod"
    assert pequod("join", "add", f"{TIMELINE}; karma|<a> = count vote|<a>|<b>").code == 0
    file.write_text(f"{TIMELINE.replace('= ', '=  ')};\nlikes|<p> = count like|<p>|<u>;")
    planned = pequod("join", "apply", str(file), "--dry-run")
    assert (planned.code, planned.err) == (0, "")
    assert [line[0] for line in planned.out.splitlines()] == ["-", "+", "=", "1"]
    assert len(pequod("join", "list").out.splitlines()) == 2
    shown = [json.loads(line) for line in pequod("join", "apply", str(file), "--dry-run", "--json").out.splitlines()]
    assert [(line["change"], line["name"]) for line in shown] == [("drop", "karma"), ("add", None), ("keep", "t")]
    done = pequod("join", "apply", str(file))
    assert done.out.splitlines() == [*planned.out.splitlines()[:3], "1 added, 1 dropped, 1 kept"]
    assert pequod("join", "list").out.splitlines()[1] == "likes\tlikes|<p> = count like|<p>|<u>"
    assert pequod("join", "apply", str(file)).out.splitlines()[-1] == "0 added, 0 dropped, 2 kept"
    file.write_text("last|<r> = copy message|<r>|<t>;\nt|<a> = coutn x|<a>")
    refused = pequod("join", "apply", str(file))
    assert (refused.code, refused.out) == (3, "")
    assert "line 2, column 9: 'coutn' is no operator" in refused.err
    file.write_text("last|<r> = copy message|<r>|<t>")
    warned = pequod("join", "apply", str(file))
    assert (warned.code, warned.out.splitlines()[-1]) == (0, "1 added, 2 dropped, 0 kept")
    assert warned.err.startswith("pequod: warning: join last: ambiguous")
    assert pequod("join", "apply", str(tmp_path / "none")).code == 2
