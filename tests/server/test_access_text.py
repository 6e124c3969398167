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
