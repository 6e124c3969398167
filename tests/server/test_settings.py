"""Where settings come from, which source wins, and what is said of those that are not right."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_server import ServerConfig
from pequod_server.config import metavar, written
from pequod_server.joins import install_joins
from pequod_server.settings import ConfigError, flag, load, variable
from pydantic import ValidationError

from pequod.engine import Engine

pytestmark = pytest.mark.usefixtures("default_settings")


def _file(folder: Path, text: str) -> Path:
    file = folder / "pequod.toml"
    file.write_text(text)
    return file


def _problems(file: Path | None = None, **flags: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(file, flags)
    return caught.value.problems


def test_without_sources_all_is_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEQUOD_TRANSPORT", raising=False)
    settings = load()
    assert settings.config == ServerConfig()
    assert set(settings.origins.values()) == {"default"}


def test_the_later_source_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path, 'rows_max = 1\nchunk_bytes = "1KiB"\nstreams_max = 1\nuvloop = false\ndrain_s = 3')
    monkeypatch.setenv("PEQUOD_CHUNK_BYTES", "2KiB")
    monkeypatch.setenv("PEQUOD_STREAMS_MAX", "2")
    monkeypatch.setenv("PEQUOD_UVLOOP", "yes")
    settings = load(file, {"streams_max": "3"})
    config, origins = settings.config, settings.origins
    assert (config.rows_max, origins["rows_max"]) == (1, str(file))
    assert (config.chunk_bytes, origins["chunk_bytes"]) == (2048, "PEQUOD_CHUNK_BYTES")
    assert (config.streams_max, origins["streams_max"]) == (3, "--streams-max")
    assert (config.uvloop, origins["uvloop"]) == (True, "PEQUOD_UVLOOP")
    assert (config.drain_s, origins["drain_s"]) == (3.0, str(file))
    assert (config.calls_max, origins["calls_max"]) == (10_000, "default")


def test_variables_that_are_empty_or_not_ours_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEQUOD_ROWS_MAX", "")
    monkeypatch.setenv("PEQUOD_SERVICE_HOST", "10.0.0.1")
    assert load().config == ServerConfig()


def test_a_configuration_made_in_a_program_does_not_look_at_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEQUOD_ROWS_MAX", "5")
    assert ServerConfig().rows_max == 8192


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path, 'row_max = 1\nlisten = 7744\nuvloop = "perhaps"\n[server]\nkey_bytes_max = 3')
    monkeypatch.setenv("PEQUOD_DRAIN_S", "soon")
    assert _problems(file, rows_max="0", listen="localhost") == (
        f"{file}: listen = 7744: must be a valid string",
        f"{file}: uvloop = 'perhaps': must be a valid boolean, unable to interpret input",
        f"{file}: row_max: no such setting; did you mean rows_max?",
        f"{file}: server: no such setting",
        "PEQUOD_DRAIN_S = 'soon': must be a valid number",
        "--listen = 'localhost': must be HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:7744",
        "--rows-max = '0': must be greater than or equal to 1",
    )


def test_a_value_that_is_not_right_is_refused_though_a_later_source_would_win(tmp_path: Path) -> None:
    file = _file(tmp_path, "rows_max = true")
    assert _problems(file, rows_max="7") == (f"{file}: rows_max = True: must be a valid integer",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"rows_max = = 3", "is not TOML: Invalid value (at line 1, column 12)"),
        (b"rows_max = 3\nrows_max = 4", "is not TOML: Cannot overwrite a value (at "),
        (b"joins = '\xff'", "is not UTF-8: "),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "pequod.toml"
    if content is not None:
        file.write_bytes(content)
    (said,) = _problems(file)
    assert said.startswith(f"{file}: {problem}")
    assert _problems(tmp_path) == (f"{tmp_path}: cannot be read: Is a directory",)


BAD: dict[str, list[object]] = {
    "key_bytes_max": [0, -1, 1.5, True, "4MiB x", "4 parsecs", "-4KiB", "", 1 << 31, [1]],
    "rows_max": [0, "8.5", "8KiB", False, None],
    "drain_s": [-1, float("nan"), float("inf"), True, "1m"],
    "listen": ["", ":7744", "host", "host:", "host:65536", "a b:1", "unix:/tmp/s", "::1:7744", 7744],
    "join_files": [3, [3], {"a": 1}],
    "channelz": ["maybe", 2, []],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_values_that_are_not_right(name: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        ServerConfig.model_validate({name: value})
    assert [error["loc"][0] for error in caught.value.errors()] == [name]


@pytest.mark.parametrize(
    "address", ["localhost:0", "0.0.0.0:7744", "[::1]:7744", "[fe80::1%eth0]:1", "a-b.example:65535"]
)
def test_an_address_to_listen_on_is_taken(address: str) -> None:
    assert ServerConfig(listen=address).listen == address


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64KiB", 65536), ("4 MiB", 4 << 20), ("1.5MiB", 3 << 19), ("1GiB", 1 << 30), ("2MB", 2_000_000)],
)
def test_a_size_is_written_with_its_unit(text: str, size: int) -> None:
    assert ServerConfig.model_validate({"key_bytes_max": text}).key_bytes_max == size


@given(st.integers(1, (1 << 31) - 1), st.floats(0, 1e6), st.booleans())
def test_a_written_value_is_read_as_itself(size: int, seconds: float, is_on: bool) -> None:
    values = {"chunk_bytes": size, "rows_max": size, "drain_s": seconds, "channelz": is_on}
    read = ServerConfig.model_validate({name: written(name, value) for name, value in values.items()})
    assert {name: getattr(read, name) for name in values} == values


def test_every_setting_can_be_written_named_and_described() -> None:
    for name, field in ServerConfig.model_fields.items():
        assert ServerConfig.model_validate({name: written(name, field.default)}) == ServerConfig()
        assert metavar(name).isupper() or field.annotation is bool
        assert field.description
        assert (flag(name), variable(name)) == (f"--{name}".replace("_", "-"), f"PEQUOD_{name}".upper())


def test_join_files_are_meant_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path, 'join_files = ["a.pequod", "/etc/b.pequod"]')
    assert load(file).config.join_files == (tmp_path / "a.pequod", Path("/etc/b.pequod"))
    monkeypatch.setenv("PEQUOD_JOIN_FILES", "a.pequod:/etc/b.pequod")
    assert load(file).config.join_files == (Path("a.pequod"), Path("/etc/b.pequod"))
    assert load(file, {"join_files": ["c.pequod"]}).config.join_files == (Path("c.pequod"),)


def test_an_empty_file_name_is_none_and_others_are_meant_from_the_folder(tmp_path: Path) -> None:
    config = load(_file(tmp_path, 'access_file = ""\ntls_key = "a.key"\ntls_certificate = "/etc/a.pem"')).config
    assert (config.access_file, config.tls_key) == (None, tmp_path / "a.key")
    assert config.tls_certificate == Path("/etc/a.pem")


def test_joins_come_from_the_files_in_order_and_then_from_the_text(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("b|<x> = copy a|<x>; c|<x> = copy b|<x>\n")
    (tmp_path / "two").write_text("")
    engine = Engine()
    joins = json.dumps("d|<x> = copy c|<x>")
    install_joins(engine, load(_file(tmp_path, f'joins = {joins}\njoin_files = ["one", "two"]')).config)
    assert [join.name for join in engine.joins()] == ["b", "c", "d"]
    engine.put(b"a|1", b"v")
    assert engine.get(b"d|1", now=0.0) == b"v"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b"a|<x> = copy b|<x>;\nc|<x> = copi d|<x>",
            "line 2, column 9: 'copi' is no operator\n    c|<x> = copi d|<x>\n",
        ),
        (b"a|<x> = copy a|<x>", "line 1, column 1: "),
        (b"\xff", "is not UTF-8: "),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_join_that_cannot_be_installed_is_told_with_its_file(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "joins.pequod"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        install_joins(Engine(), ServerConfig(join_files=(file,)))
    assert str(caught.value).startswith(f"{file}: {problem}")
