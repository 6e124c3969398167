"""Settings on the command line: serve, config check, config show."""

import json
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pequod_server import ServerConfig
from pequod_server.settings import load

from pequod import Client
from tests.cli.conftest import Pequod
from tests.forked import run_command, started_server

JOIN = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10>"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "more.pequod").write_text("karma|<author> = count vote|<author>|<voter>")
    file = tmp_path / "pequod.toml"
    file.write_text(f'key_bytes_max = 10\nvalue_bytes_max = "1KiB"\njoins = "{JOIN}"\njoin_files = ["more.pequod"]\n')
    return file


def test_a_server_takes_file_environment_and_flags(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEQUOD_CONFIG", str(file))
    monkeypatch.setenv("PEQUOD_KEY_BYTES_MAX", "20")
    with started_server("--value-bytes-max", "2KiB") as (target, _), Client(target) as client:
        assert [join.name for join in client.joins()] == ["karma", "t"]
        client.put("k" * 20, "v" * 2048)
        for key, value, setting in (
            ("k" * 21, "", "key_bytes_max is 20,"),
            ("k", "v" * 2049, "value_bytes_max is 2048,"),
        ):
            with pytest.raises(Exception, match=setting):
                client.put(key, value)


@pytest.mark.usefixtures("default_settings")
def test_show_tells_what_holds_and_where_it_comes_from(
    pequod: Pequod, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEQUOD_ROWS_MAX", "7")
    outcome = pequod("config", "show", str(file))
    assert outcome.code == 0
    lines = {line.removeprefix("# ").split()[0]: line for line in outcome.out.splitlines()}
    assert list(lines) == list(ServerConfig.model_fields)
    assert lines["key_bytes_max"].split() == ["key_bytes_max", "=", '"10"', "#", str(file)]
    assert lines["rows_max"].split() == ["rows_max", "=", "7", "#", "PEQUOD_ROWS_MAX"]
    assert lines["drain_s"].split() == ["drain_s", "=", "5.0", "#", "default"]
    assert lines["tls_key"].split() == ["#", "tls_key", "is", "not", "set", "#", "default"]


def test_what_show_prints_is_a_file_with_the_same_settings(pequod: Pequod, file: Path, tmp_path: Path) -> None:
    shown = tmp_path / "elsewhere" / "shown.toml"
    shown.parent.mkdir()
    shown.write_text(pequod("config", "show", str(file)).out)
    assert load(shown).config == load(file).config


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://twip:s3cret@db:5432/twip", "postgresql://twip:***@db:5432/twip"),
        ("postgresql://twip:s3cr@t/s3cret@db/twip", "postgresql://twip:***@db/twip"),
        (
            "postgresql://twip@db/twip?password=s3cret&sslmode=require",
            "postgresql://twip@db/twip?password=***&sslmode=require",
        ),
        (
            "postgresql://db/twip?sslmode=require&sslPassword=s3cret",
            "postgresql://db/twip?sslmode=require&sslPassword=***",
        ),
        ("postgresql://twip@db:5432/twip", "postgresql://twip@db:5432/twip"),
        ("sqlite:a:b@c.db", "sqlite:a:b@c.db"),
    ],
)
def test_show_hides_passwords(pequod: Pequod, monkeypatch: pytest.MonkeyPatch, url: str, shown: str) -> None:
    monkeypatch.setenv("PEQUOD_BACKING", url)
    for arguments in (["config", "show"], ["config", "show", "--json"]):
        outcome = pequod(*arguments)
        assert outcome.code == 0
        assert "s3cr" not in outcome.out + outcome.err
        assert shown in outcome.out


def test_show_as_data(pequod: Pequod, file: Path) -> None:
    rows = [json.loads(line) for line in pequod("config", "show", str(file), "--json").out.splitlines()]
    assert {"name": "value_bytes_max", "value": "1KiB", "from": str(file)} in rows
    assert tomllib.loads(pequod("config", "show", str(file)).out) == {
        row["name"]: row["value"] for row in rows if row["value"] is not None
    }


def test_check_accepts_a_good_file(pequod: Pequod, file: Path) -> None:
    outcome = pequod("config", "check", str(file))
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{file}: right; joins: 2\n", "")


def test_check_tells_of_variables_that_look_misspelt(pequod: Pequod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEQUOD_ROW_MAX", "3")
    monkeypatch.setenv("PEQUOD_SERVICE_HOST", "10.0.0.1")
    outcome = pequod("config", "check")
    assert (outcome.code, outcome.out) == (0, "environment: right; joins: 0\n")
    assert outcome.err == "pequod: warning: PEQUOD_ROW_MAX is no setting; did you mean PEQUOD_ROWS_MAX?\n"


def test_check_tells_the_warnings_of_joins(pequod: Pequod, file: Path) -> None:
    file.write_text("joins = 'k|<t> = copy p|<u>|<t>'")
    outcome = pequod("config", "check", str(file))
    assert (outcome.code, outcome.out) == (0, f"{file}: right; joins: 1\n")
    assert outcome.err.startswith("pequod: warning: join k: ")


@pytest.mark.parametrize("command", [("config", "check"), ("config", "show"), ("serve", "--config")])
def test_a_bad_file_is_refused_with_all_that_is_wrong(pequod: Pequod, file: Path, command: tuple[str, ...]) -> None:
    file.write_text('row_max = 1\nlisten = "nowhere"\n')
    outcome = pequod(*command, str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "pequod: 2 things are wrong with the configuration:\n"
        f"  {file}: listen = 'nowhere': must be HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:7744\n"
        f"  {file}: row_max: no such setting; did you mean rows_max?\n"
    )


@pytest.mark.parametrize("command", [("config", "check"), ("serve", "--listen", "127.0.0.1:0", "--config")])
def test_a_bad_join_is_refused_with_its_place(file: Path, command: tuple[str, ...]) -> None:
    file.write_text('joins = """\nt|<user> = coutn s|<user>|<poster>"""\n')
    outcome = run_command(*command, str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"pequod: {file}: joins: line 1, column 12: 'coutn' is no operator\n")
    assert "hint: did you mean `count`?" in outcome.err


def test_a_server_with_a_bad_join_never_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    refused = run_command("serve", "--listen", f"127.0.0.1:{port}", "--joins", "no join")
    assert refused.code == 2
    assert refused.err.startswith("pequod: --joins: line 1, column ")
    assert "serving" not in refused.err


def test_the_help_of_serve_loads_no_server() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pequod.cli.app import app;"
        "text = CliRunner().invoke(app, ['serve', '--help']).stdout;"
        "assert 'default: 1MiB' in text, text;"
        "print(*sorted({'grpc', 'pydantic_settings', 'pequod.engine', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"


def test_check_refuses_a_transport_that_is_not_there(
    pequod: Pequod, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pequod_server.transport.choice.why_absent", lambda: "without its library")
    file.write_text("transport = 'native'")
    outcome = pequod("config", "check", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert "there is no native transport" in outcome.err


@pytest.mark.usefixtures("default_settings")
def test_check_refuses_a_limit_of_memory_that_is_too_low_for_a_server(file: Path) -> None:
    file.write_text("memory_limit = '20MiB'")
    outcome = run_command("config", "check", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert "are too few" in outcome.err


def test_check_refuses_more_memory_for_messages_than_the_limit_has(file: Path) -> None:
    file.write_text("memory_limit = '256MiB'\nmessages_bytes_max = '1GiB'")
    outcome = run_command("config", "check", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert "messages_bytes_max: 1073741824 bytes are too many for a memory_limit of 268435456 bytes" in outcome.err


def test_check_refuses_a_snapshot_that_could_not_be_written(pequod: Pequod, file: Path, tmp_path: Path) -> None:
    file.write_text(f"snapshot_file = '{tmp_path}/no/file'")
    outcome = pequod("config", "check", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert f"snapshot {tmp_path}/no/file: no snapshot could be written there: No such file or directory" in outcome.err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("snapshot_every_s = 60", "snapshot_every_s: there is no place for snapshots; give snapshot_folder"),
        ("snapshot_keep = 3", "snapshot_keep: one file is kept, or none; give snapshot_folder"),
        ("snapshot_file = 'a'\nsnapshot_folder = 'b'", "snapshot_folder: snapshots are in it or in one file"),
        ("snapshot_folder = '/proc/none/here'", "snapshot /proc/none/here: no snapshot could be written there"),
        ("snapshot_folder = 'b'\ndata = 'c'", "give data or snapshot_folder; `pequod data backup` makes copies of it"),
        ("snapshot_folder = 'b'\nsnapshot_keep = 0", "snapshot_keep"),
    ],
)
def test_check_refuses_snapshots_that_do_not_go_together(file: Path, settings: str, words: str) -> None:
    file.write_text(settings)
    outcome = run_command("config", "check", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err


def test_check_leaves_a_folder_for_snapshots_to_the_server(file: Path, tmp_path: Path) -> None:
    file.write_text(f"snapshot_folder = '{tmp_path}/snapshots'\nsnapshot_every_s = 60\nsnapshot_keep = 3")
    assert run_command("config", "check", str(file)).code == 0
    assert not (tmp_path / "snapshots").exists()
