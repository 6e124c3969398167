"""What of the settings each worker gets, and which settings several workers cannot have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pequod_server.config import ServerConfig
from pequod_server.setting_kinds import MIB
from pequod_server.workers.plan import memory_shares, plan_of, refuse_unshared, worker_count

from pequod.cluster.servers import ServerRole
from pequod.errors import SettingError
from tests.forked import run_command
from tests.workers.conftest import TIMELINES

QUOTAS = """
[roles.app]
read = ["*"]
quotas = { calls_per_s = 10 }
"""


def test_auto_is_one_worker_for_each_core_of_the_process() -> None:
    assert worker_count(ServerConfig(workers="auto")) >= 1
    assert worker_count(ServerConfig(workers="7")) == 7
    assert worker_count(ServerConfig.model_validate({"workers": 7})) == 7


@pytest.mark.parametrize("workers", ["0", "many", "257", "-1"])
def test_other_numbers_of_workers_are_refused(workers: str) -> None:
    with pytest.raises(ValueError, match="from 1 to 256, or auto"):
        ServerConfig(workers=workers)


def test_the_limit_of_memory_is_shared_out() -> None:
    config = ServerConfig(workers="3", memory_limit="400MiB")
    assert memory_shares(config, 3, is_even=False) == [str(200 * MIB), str(100 * MIB), str(100 * MIB)]
    assert sum(map(int, memory_shares(config, 3, is_even=True))) <= 400 * MIB
    assert memory_shares(ServerConfig(memory_limit="none"), 3, is_even=True) == ["none"] * 3
    with pytest.raises(SettingError, match="too little for 9 workers"):
        memory_shares(ServerConfig(memory_limit="8MiB"), 9, is_even=True)


def test_the_home_has_what_is_behind_the_server_and_computes_have_the_map() -> None:
    plan = plan_of(ServerConfig(workers="3", joins=TIMELINES, data=Path("/somewhere"), http="127.0.0.1:0"))
    home, *computes = (one.config for one in plan.workers)
    assert (home.data, home.http, home.joins) == (Path("/somewhere"), "127.0.0.1:0", "")
    assert all((one.data, one.http, one.joins) == (None, "", "") for one in computes)
    assert plan.is_lasting
    state = plan.state({one.id: f"unix:/run/{one.id}" for one in plan.workers})
    assert [(one.first, one.last) for one in state.map.home_ranges] == [(b"p|", b"p}"), (b"s|", b"s}")]
    assert [ServerRole.HOME in one.roles for one in state.servers] == [True, False, False]
    assert not plan_of(ServerConfig(workers="3", joins=TIMELINES)).is_lasting


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cluster": "static:map.toml"}, "go with cluster: a server of a cluster is one process"),
        ({"backing": "pequod://10.0.0.1:7744"}, "go with backing: .*those of other servers"),
        ({"backing": "sqlite:x", "backing_mode": "look-aside"}, "go with backing_mode: .*look-aside"),
        ({"peer_exports": "votes"}, "go with peer_exports: "),
    ],
)
def test_what_several_workers_cannot_have_is_refused_by_name(settings: dict[str, Any], words: str) -> None:
    refuse_unshared(ServerConfig(**settings))
    with pytest.raises(SettingError, match=words):
        refuse_unshared(ServerConfig(workers="2", **settings))


def test_quotas_are_refused_since_each_worker_would_count_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text(QUOTAS)
    with pytest.raises(SettingError, match="quotas of role app"):
        refuse_unshared(ServerConfig(workers="2", access_file=file))


def test_ports_of_workers_need_workers() -> None:
    with pytest.raises(SettingError, match="worker_port"):
        refuse_unshared(ServerConfig(worker_port=7000))


def test_the_check_of_the_settings_and_the_start_refuse_the_same(tmp_path: Path) -> None:
    file = tmp_path / "pequod.toml"
    file.write_text('workers = 2\npeer_exports = "votes"\n')
    for command in (("config", "check", str(file)), ("serve", "--config", str(file))):
        outcome = run_command(*command)
        assert outcome.code == 2
        assert "leave peer_exports out" in outcome.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--workers", "2", "--cluster", "static:map.toml"), "workers: several do not go with cluster: "),
        (("--workers", "9", "--memory-limit", "8MiB"), "memory_limit: "),
        (("--workers", "2", "--memory-limit", "1GiB", "--messages-bytes-max", "500MiB"), "for each of 2 workers"),
        (("--worker-port", "7000"), "worker_port: "),
        (("--worker-spread", "2"), "worker_spread: "),
        (("--workers", "2", "--worker-port", "65535", "--listen", "127.0.0.1:0"), "worker_port: "),
    ],
)
def test_a_start_with_settings_that_do_not_go_together_ends_as_one_with_wrong_settings(
    flags: tuple[str, ...], words: str
) -> None:
    outcome = run_command("serve", *flags)
    assert outcome.code == 2
    assert words in outcome.err
