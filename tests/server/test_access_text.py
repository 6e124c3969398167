"""Access files that are not right: what the server says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pequod_server import PequodServer, ServerConfig

from pequod.errors import SettingError


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        ('write = ["p|ann|"]\n[roles.a.quotas]\nkeys = 1', "roles.a: quotas of keys and bytes need `write` on whole"),
        ("[roles.a.quotas]\nbytes = 1", "roles.a: quotas of keys and bytes need `write` on whole tables"),
        ('feed = ["p|"]\n[roles.a.quotas]\nwatches = 1', "roles.a: quotas are for clients"),
        ("[roles.a.quotas]\ncalls_per_s = 0", "roles.a.quotas.calls_per_s: "),
        ("[roles.a.quotas]\nkeys = -1", "roles.a.quotas.keys: "),
        ('[roles.a.quotas]\nbytes = "many"', "roles.a.quotas.bytes: must be a size"),
        ("[roles.a.quotas]\nkey = 1", "roles.a.quotas.key: "),
    ],
)
def test_quotas_that_nothing_could_hold_to_are_told(tmp_path: Path, role: str, reason: str) -> None:
    path = tmp_path / "access.toml"
    path.write_text(f"[roles.a]\n{role}\n")
    with pytest.raises(SettingError) as raised:
        PequodServer(ServerConfig(listen="127.0.0.1:0", access_file=path))
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[roles.web]\nraed = ["p|"]', "roles.web.raed: no such setting; did you mean read?"),
        ("[rolls.web]", "rolls: no such setting; did you mean roles?"),
        (
            "[roles.web.quotas]\ncalls_per_sec = 1",
            "roles.web.quotas.calls_per_sec: no such setting; did you mean calls_per_s?",
        ),
        ('[tokens.web]\nrole = "web"\nsha_256 = "x"', "tokens.web.sha_256: no such setting; did you mean sha256?"),
        ('[tokens.web]\nrole = "web"', "tokens.web.sha256: is missing"),
        ('[tokens.web]\nrole = "web"\nsha256 = "pqd_secret"', "tokens.web.sha256: must be 64 hexadecimal digits"),
        ('[roles.web]\nread = "p|"', "roles.web.read: must be a valid list"),
        ("[roles.web", "is not TOML: "),
    ],
)
def test_what_is_wrong_is_said_as_settings_say_it(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "access.toml"
    path.write_text(text)
    with pytest.raises(SettingError) as raised:
        PequodServer(ServerConfig(listen="127.0.0.1:0", access_file=path))
    assert f"access_file: {path}: " in str(raised.value) and reason in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(SettingError) as raised:
        PequodServer(ServerConfig(listen="127.0.0.1:0", access_file=path))
    assert str(raised.value) == f"access_file: {path}: cannot be read: No such file or directory"
